use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::call::Call;
use super::draft::{self, look_alike};
use super::queue::{Closed, Queue};
use super::reader::{Clock, Events, ReaderWait};
use super::{Event, EventKind, Invocation, Sink};
use crate::context::State;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::message::{Message, Messages, Role};

/// Where one agent of a watched run tells what happens in it.
#[derive(Clone)]
pub(crate) struct Outlet(Arc<Part>);

struct Part {
    invocation: Arc<Invocation>,
    run: Arc<Run>,
    /// The agent whose conversation this one goes on with, or the run.
    conversation: Option<Outlet>,
    shown: Mutex<Vec<Shown>>,
}

/// What the agents of a run share.
struct Run {
    name: Arc<str>,
    queue: Arc<Queue>,
    state: State,
    clock: Arc<Clock>,
    invocations: AtomicU32,
    calls: AtomicU32,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.queue.end();
    }
}

/// An answer that was seen and not taken back.
struct Shown {
    id: Arc<str>,
    message: Message,
}

impl Outlet {
    /// One for the run itself, and what is told there.
    pub(crate) fn new(name: Arc<str>, state: State, capacity: usize) -> (Self, Events) {
        let queue = Arc::new(Queue::new(capacity));
        let clock = Arc::<Clock>::default();
        let events = Events::new(queue.clone(), clock.clone());
        let (invocations, calls) = Default::default();
        let run = Arc::new(Run { name, queue, state, clock, invocations, calls });
        let (invocation, shown) = Default::default();
        (Self(Arc::new(Part { invocation, run, conversation: None, shown })), events)
    }

    /// One for an agent called in this one.
    pub(crate) fn enter(&self, path: Arc<str>, tool_call: Option<Arc<str>>, goes_on: bool) -> Self {
        let Part { invocation, run, .. } = &*self.0;
        let number = run.invocations.fetch_add(1, Ordering::Relaxed) + 1;
        let id = format!("{}-a{number}", run.name).into();
        let caller = (invocation.number > 0).then(|| invocation.clone());
        let conversation = (goes_on || caller.is_none()).then(|| self.clone());
        let goes_on = goes_on && caller.is_some();
        let tool_call = tool_call.filter(|_| caller.is_some() && !goes_on);
        Self(Arc::new(Part {
            invocation: Arc::new(Invocation { id, number, path, caller, tool_call, goes_on }),
            run: run.clone(),
            conversation,
            shown: Mutex::default(),
        }))
    }

    /// Tells what happens, all of it, even if this is dropped while it waits for the reader.
    pub(super) async fn send_all(&self, kinds: &mut Vec<EventKind>) -> Result<()> {
        // Nearly always there is room, and nothing to wait for.
        if self.push(kinds).map_err(|Closed| gone())? {
            return Ok(());
        }
        let Run { queue, clock, .. } = &*self.0.run;
        let _wait = clock.pause();
        queue.room().await.map_err(|Closed| gone())
    }

    /// Tells what happens, without waiting: for one that is dropped.
    pub(crate) fn note(&self, kinds: &mut Vec<EventKind>) {
        // Without a reader there is nobody to tell, and nothing else to do about it.
        drop(self.push(kinds));
    }

    fn push(&self, kinds: &mut Vec<EventKind>) -> Result<bool, Closed> {
        let Part { invocation, run, .. } = &*self.0;
        if let Some(patch) = run.state.untold() {
            kinds.insert(0, EventKind::StateDelta { patch });
        }
        run.queue.push(kinds.drain(..).map(|kind| Event { invocation: invocation.clone(), kind }))
    }

    /// Tells what happens to whoever is still there.
    pub(crate) async fn tell(&self, kind: EventKind) {
        self.tell_all(vec![kind]).await;
    }

    async fn tell_all(&self, mut events: Vec<EventKind>) {
        if !events.is_empty() {
            drop(self.send_all(&mut events).await);
        }
    }

    /// Where the deltas of the next model call go.
    pub(crate) fn sink(&self) -> Sink {
        let run = &self.0.run;
        let number = run.calls.fetch_add(1, Ordering::Relaxed);
        let call = Call::new(format!("{}-{number}", run.name).into());
        Sink { outlet: self.clone(), call: Arc::new(call), frames: None }
    }

    /// The time that the run waits for its reader from here on.
    pub(crate) fn reader_wait(&self) -> ReaderWait {
        self.0.run.clock.watch()
    }

    /// A model call is over: what is seen of it becomes what was answered, by the attempt of that
    /// number, if anything was.
    pub(crate) async fn settle(&self, sink: &Sink, answer: Option<(&Message, Option<u32>)>) {
        let mut events = Vec::new();
        let id = sink.call.settle(answer, &mut events);
        if let (Some(id), Some((message, _))) = (id, answer) {
            lock(&self.0.shown).push(Shown { id, message: message.clone() });
        }
        self.tell_all(events).await;
    }

    /// A model call was dropped: what is seen of it is void.
    pub(crate) fn drop_call(&self, sink: &Sink) {
        let mut events = Vec::new();
        sink.call.settle(None, &mut events);
        self.note(&mut events);
    }

    /// The agent begins with this conversation: what else was seen of it before is void.
    pub(crate) async fn begin(&self, conversation: &Messages) {
        let mut void = Vec::new();
        lock(&self.0.shown).retain(|shown| {
            let stays = conversation.iter().any(|message| look_alike(message, &shown.message));
            if !stays {
                void.push(EventKind::AttemptDiscarded { message: shown.id.clone() });
            }
            stays
        });
        self.tell_all(void).await;
    }

    /// The agent has answered: what is seen of it becomes what it has said.
    pub(crate) async fn answered<'a>(&self, said: impl Iterator<Item = &'a Message>) {
        let mut events = Vec::new();
        let said = said.filter(|message| message.role() == Role::Assistant);
        let mut said: Vec<_> = said.filter(|message| draft::is_visible(message)).collect();
        let mut shown = std::mem::take(&mut *lock(&self.0.shown));
        // The latest first: what is the same twice, and said once, was said last.
        for index in (0..shown.len()).rev() {
            match said.iter().rposition(|message| look_alike(message, &shown[index].message)) {
                Some(at) => drop(said.remove(at)),
                None => {
                    let message = shown.remove(index).id;
                    events.push(EventKind::ResponseReplaced { message });
                }
            }
        }
        events.reverse();
        for message in said {
            let sink = self.sink();
            if let Some(id) = sink.call.settle(Some((message, None)), &mut events) {
                shown.push(Shown { id, message: message.clone() });
            }
        }
        self.hand_over(shown);
        self.tell_all(events).await;
    }

    /// The agent has failed or was dropped. What is seen of it is void if another answer takes its
    /// place.
    pub(crate) fn failed(&self) {
        let shown = std::mem::take(&mut *lock(&self.0.shown));
        self.hand_over(shown);
    }

    fn hand_over(&self, mut shown: Vec<Shown>) {
        let conversation = self.0.conversation.as_ref().unwrap_or(self);
        lock(&conversation.0.shown).append(&mut shown);
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Cancelled, "the reader of the stream went away")
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outlet").field(&self.0.invocation).finish()
    }
}
