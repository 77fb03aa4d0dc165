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
    /// The agent whose conversation this one goes on with.
    conversation: Option<Outlet>,
    shown: Mutex<Vec<Shown>>,
}

/// What the agents of a run share.
struct Run {
    name: Arc<str>,
    queue: mpsc::Sender<Event>,
    state: State,
    clock: Arc<Clock>,
    invocations: AtomicU32,
    calls: AtomicU32,
    /// What happened where nobody could wait for the reader.
    untold: Mutex<VecDeque<Event>>,
    /// What was seen of calls of agents that have failed.
    failed: Mutex<Vec<(Arc<Invocation>, Vec<Shown>)>>,
}

/// A model call while it is answered. If it is dropped first, what was seen of it is void.
pub(crate) struct Answering<'a> {
    outlet: &'a Outlet,
    sink: Sink,
}

impl Answering<'_> {
    /// Where the deltas of the call go.
    pub(crate) fn sink(&self) -> Sink {
        self.sink.clone()
    }

    /// The call is over: what is seen of it becomes what was answered, by the attempt of that
    /// number, if anything was.
    pub(crate) async fn settle(self, answer: Option<(&Message, Option<u32>)>) {
        self.outlet.settle(&self.sink, answer).await;
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        let mut events = Vec::new();
        // Says nothing of a call that is settled.
        self.sink.call.settle(None, &mut events);
        let Part { invocation, run, .. } = &*self.outlet.0;
        let event = |kind| Event { invocation: invocation.clone(), kind };
        lock(&run.untold).extend(events.into_iter().map(event));
    }
}

/// A call of an agent while it is made. If it fails or is dropped, and is made again, what was
/// seen of it is void.
pub(crate) struct Calling<'a> {
    outlet: &'a Outlet,
    has_answered: bool,
}

impl Calling<'_> {
    /// The agent has answered: what is seen of it becomes what it has said.
    pub(crate) async fn answered<'a>(&mut self, said: impl Iterator<Item = &'a Message>) {
        self.outlet.answered(said).await;
        self.has_answered = true;
    }
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        let Part { invocation, run, conversation, shown } = &*self.outlet.0;
        let mut shown = std::mem::take(&mut *lock(shown));
        if self.has_answered || shown.is_empty() {
            return;
        }
        match conversation {
            Some(outlet) => lock(&outlet.0.shown).append(&mut shown),
            None => lock(&run.failed).push((invocation.clone(), shown)),
        }
    }
}

/// An answer that was seen and not taken back.
struct Shown {
    id: Arc<str>,
    message: Message,
}

impl Run {
    /// A call of an agent begins. If it was made before and has failed, what was seen is void.
    fn call_again(&self, call: &Invocation) {
        let is_same = |before: &Invocation| {
            before.path == call.path
                && before.caller == call.caller
                && before.tool_call == call.tool_call
        };
        let mut failed = lock(&self.failed);
        let mut untold = lock(&self.untold);
        for (invocation, shown) in failed.extract_if(.., |(before, _)| is_same(before)) {
            untold.extend(shown.into_iter().map(|shown| Event {
                invocation: invocation.clone(),
                kind: EventKind::AttemptDiscarded { message: shown.id },
            }));
        }
    }

    async fn push(&self, event: Event) -> Result<()> {
        let gone = || Error::new(ErrorKind::Cancelled, "the reader of the stream went away");
        match self.queue.try_send(event) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(event)) => {
                let _wait = self.clock.pause();
                self.queue.send(event).await.map_err(|_| gone())
            }
            Err(TrySendError::Closed(_)) => Err(gone()),
        }
    }
}

impl Outlet {
    /// One for the run itself, and what is told there.
    pub(crate) fn new(name: Arc<str>, state: State, capacity: usize) -> (Self, Events) {
        let (queue, events) = mpsc::channel(capacity.max(1));
        let clock = Arc::<Clock>::default();
        let events = Events::new(events, clock.clone());
        let (invocations, calls, untold, failed) = Default::default();
        let run = Arc::new(Run { name, queue, state, clock, invocations, calls, untold, failed });
        let (invocation, shown) = Default::default();
        (Self(Arc::new(Part { invocation, run, conversation: None, shown })), events)
    }

    /// One for an agent called in this one.
    pub(crate) fn enter(&self, path: Arc<str>, tool_call: Option<Arc<str>>, goes_on: bool) -> Self {
        let Part { invocation, run, .. } = &*self.0;
        let number = run.invocations.fetch_add(1, Ordering::Relaxed) + 1;
        let caller = (invocation.number > 0).then_some(invocation.number);
        let tool_call = tool_call.filter(|_| caller.is_some() && !goes_on);
        let invocation = Arc::new(Invocation { number, path, caller, tool_call });
        run.call_again(&invocation);
        Self(Arc::new(Part {
            invocation,
            run: run.clone(),
            conversation: goes_on.then(|| self.clone()),
            shown: Mutex::default(),
        }))
    }

    /// Tells what happens, waiting while the queue is full.
    pub(crate) async fn send(&self, kind: EventKind) -> Result<()> {
        loop {
            // What nobody could wait for when it happened comes first.
            let untold = lock(&self.0.run.untold).pop_front();
            let Some(event) = untold else { break };
            self.0.run.push(event).await?;
        }
        if let Some(patch) = self.0.run.state.untold() {
            self.push(EventKind::StateDelta { patch }).await?;
        }
        self.push(kind).await
    }

    async fn push(&self, kind: EventKind) -> Result<()> {
        let Part { invocation, run, .. } = &*self.0;
        run.push(Event { invocation: invocation.clone(), kind }).await
    }

    /// Tells what happens to whoever is still there.
    pub(crate) async fn tell(&self, kind: EventKind) {
        // Without a reader there is nobody to tell, and nothing else to do about it.
        drop(self.send(kind).await);
    }

    async fn tell_all(&self, events: Vec<EventKind>) {
        for event in events {
            self.tell(event).await;
        }
    }

    /// The agent is called.
    pub(crate) fn calling(&self) -> Calling<'_> {
        Calling { outlet: self, has_answered: false }
    }

    /// The next model call begins.
    pub(crate) fn answering(&self) -> Answering<'_> {
        Answering { outlet: self, sink: self.sink() }
    }

    /// Where the deltas of the next model call go.
    pub(super) fn sink(&self) -> Sink {
        let run = &self.0.run;
        let number = run.calls.fetch_add(1, Ordering::Relaxed);
        let call = Call::new(format!("{}-{number}", run.name).into());
        Sink { outlet: self.clone(), call: Arc::new(call), frames: None }
    }

    /// The time that the run waits for its reader from here on.
    pub(crate) fn reader_wait(&self) -> ReaderWait {
        self.0.run.clock.watch()
    }

    async fn settle(&self, sink: &Sink, answer: Option<(&Message, Option<u32>)>) {
        let mut events = Vec::new();
        let id = sink.call.settle(answer, &mut events);
        if let (Some(id), Some((message, _))) = (id, answer) {
            lock(&self.0.shown).push(Shown { id, message: message.clone() });
        }
        self.tell_all(events).await;
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

    async fn answered<'a>(&self, said: impl Iterator<Item = &'a Message>) {
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
        let conversation = self.0.conversation.as_ref().unwrap_or(self);
        lock(&conversation.0.shown).append(&mut shown);
        self.tell_all(events).await;
    }
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outlet").field(&self.0.invocation).finish()
    }
}
