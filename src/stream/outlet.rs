use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::call::Call;
use super::draft::{self, look_alike};
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
    queue: mpsc::Sender<Event>,
    /// What is to be told before anything else. Whoever is dropped while it waits for the reader
    /// leaves it here.
    untold: Mutex<VecDeque<Event>>,
    state: State,
    clock: Arc<Clock>,
    invocations: AtomicU32,
    calls: AtomicU32,
}

/// An answer that was seen and not taken back.
struct Shown {
    id: Arc<str>,
    message: Message,
}

impl Run {
    /// Passes on what there is room for; whether that was all.
    fn pass_on(&self) -> Result<bool> {
        let mut untold = lock(&self.untold);
        while let Some(event) = untold.pop_front() {
            match self.queue.try_send(event) {
                Ok(()) => {}
                Err(TrySendError::Full(event)) => {
                    untold.push_front(event);
                    return Ok(false);
                }
                Err(TrySendError::Closed(_)) => {
                    untold.clear();
                    return Err(gone());
                }
            }
        }
        Ok(true)
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Cancelled, "the reader of the stream went away")
}

impl Outlet {
    /// One for the run itself, and what is told there.
    pub(crate) fn new(name: Arc<str>, state: State, capacity: usize) -> (Self, Events) {
        let (queue, events) = mpsc::channel(capacity.max(1));
        let clock = Arc::<Clock>::default();
        let events = Events::new(events, clock.clone());
        let (untold, invocations, calls) = Default::default();
        let run = Arc::new(Run { name, queue, untold, state, clock, invocations, calls });
        let (invocation, shown) = Default::default();
        (Self(Arc::new(Part { invocation, run, conversation: None, shown })), events)
    }

    /// One for an agent called in this one.
    pub(crate) fn enter(&self, path: Arc<str>, tool_call: Option<Arc<str>>, goes_on: bool) -> Self {
        let Part { invocation, run, .. } = &*self.0;
        let number = run.invocations.fetch_add(1, Ordering::Relaxed) + 1;
        let caller = (invocation.number > 0).then_some(invocation.number);
        let tool_call = tool_call.filter(|_| caller.is_some() && !goes_on);
        let goes_on = goes_on || caller.is_none();
        Self(Arc::new(Part {
            invocation: Arc::new(Invocation { number, path, caller, tool_call }),
            run: run.clone(),
            conversation: goes_on.then(|| self.clone()),
            shown: Mutex::default(),
        }))
    }

    /// Tells what happens, waiting while the queue is full.
    pub(crate) async fn send(&self, kind: EventKind) -> Result<()> {
        self.send_all([kind]).await
    }

    /// Tells all of it, even if this is dropped before the reader has room.
    pub(super) async fn send_all(&self, kinds: impl IntoIterator<Item = EventKind>) -> Result<()> {
        self.note(kinds);
        self.flush().await
    }

    /// Leaves it to whoever tells something next.
    pub(crate) fn note(&self, kinds: impl IntoIterator<Item = EventKind>) {
        let Part { invocation, run, .. } = &*self.0;
        let mut untold = lock(&run.untold);
        for kind in kinds {
            let patch = run.state.untold().map(|patch| EventKind::StateDelta { patch });
            let event = |kind| Event { invocation: invocation.clone(), kind };
            untold.extend(patch.into_iter().chain([kind]).map(event));
        }
    }

    async fn flush(&self) -> Result<()> {
        let run = &self.0.run;
        while !run.pass_on()? {
            let _wait = run.clock.pause();
            let room = run.queue.reserve().await.map_err(|_| gone())?;
            let mut untold = lock(&run.untold);
            if let Some(event) = untold.pop_front() {
                room.send(event);
            }
        }
        Ok(())
    }

    /// Tells what happens to whoever is still there.
    pub(crate) async fn tell(&self, kind: EventKind) {
        // Without a reader there is nobody to tell, and nothing else to do about it.
        drop(self.send(kind).await);
    }

    async fn tell_all(&self, events: Vec<EventKind>) {
        drop(self.send_all(events).await);
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
        self.note(events);
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

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outlet").field(&self.0.invocation).finish()
    }
}
