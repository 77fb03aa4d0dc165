use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::call::{self, Call, CallChannel, CallHandle, Calls};
use super::channel::EventBatch;
use super::message_builder::{self, look_alike};
use super::reader_wait::{Clock, ReaderWait};
use super::{EventKind, EventStream, Invocation};
use crate::error::Result;
use crate::lock::lock;
use crate::message::{Message, Messages, Role, ToolResult};
use crate::state::{State, Untold};

/// Where one agent of a watched run tells what happens in it.
#[derive(Clone)]
pub(crate) struct EventEmitter(Arc<Part>);

struct Part {
    invocation: Arc<Invocation>,
    run: Arc<Run>,
    /// The agent whose conversation this one goes on with, or the run.
    conversation: Option<EventEmitter>,
    shown: Mutex<Vec<Shown>>,
}

/// What the agents of a run share.
struct Run {
    name: Arc<str>,
    channel: Arc<CallChannel>,
    state: State,
    untold: Arc<Untold>,
    clock: Arc<Clock>,
    invocations: AtomicU32,
    calls: AtomicU32,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.channel.end();
        self.state.unwatch(&self.untold);
    }
}

/// An answer that was seen and not taken back.
struct Shown {
    id: Arc<str>,
    message: Message,
}

impl EventEmitter {
    /// One for the run itself, and what is told there.
    pub(crate) fn new(name: Arc<str>, state: State, capacity: usize) -> (Self, EventStream) {
        let channel = Arc::new(CallChannel::new(capacity));
        let clock = Arc::<Clock>::default();
        let events = EventStream::new(channel.clone(), clock.clone());
        let (untold, invocations, calls) = Default::default();
        let run = Arc::new(Run { name, channel, state, untold, clock, invocations, calls });
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

    /// Tells what happens, even if this is dropped while it waits for the reader.
    pub(crate) async fn tell(&self, kind: EventKind) {
        self.tell_all(|_, out| out.push(kind)).await;
    }

    /// Tells the whole state, and from here on every change of it.
    pub(crate) async fn tell_state(&self) {
        let Run { state, untold, .. } = &*self.0.run;
        let tell = |_: &mut Calls, out: &mut EventBatch<'_>| {
            out.push(EventKind::StateSnapshot { state: state.watch(untold) });
        };
        self.tell_all(tell).await;
    }

    /// Tells how the run has ended. Nothing can be told after it.
    pub(crate) async fn end(&self, kind: EventKind) {
        self.tell_all(|_, out| out.end(kind)).await;
    }

    async fn tell_all(&self, tell: impl FnOnce(&mut Calls, &mut EventBatch<'_>)) {
        // Without a reader there is nobody to tell, and nothing else to do about it.
        if let Ok(((), false)) = self.push(tell) {
            drop(self.room().await);
        }
    }

    /// Tells what happens, without waiting: for one that is dropped.
    pub(crate) fn note(&self, kind: EventKind) {
        drop(self.push(|_, out| out.push(kind)));
    }

    /// Tells of the tool results in messages that stand in the transcript.
    pub(crate) async fn tell_answers(&self, messages: &[Message]) {
        if !messages.is_empty() {
            self.tell_all(|_, out| messages.iter().for_each(|it| answers(it, out))).await;
        }
    }

    /// The same without waiting.
    pub(crate) fn note_answer(&self, message: &Message) {
        drop(self.push(|_, out| answers(message, out)));
    }

    /// Tells what happens in a model call; whether there is still [room](Self::room).
    #[inline]
    pub(super) fn push_of<T>(
        &self,
        call: &CallHandle,
        tell: impl FnOnce(&mut Call, &mut EventBatch<'_>) -> T,
    ) -> Result<(T, bool)> {
        self.push(|calls, out| tell(call.of(calls), out))
    }

    #[inline]
    fn push<T>(
        &self,
        tell: impl FnOnce(&mut Calls, &mut EventBatch<'_>) -> T,
    ) -> Result<(T, bool)> {
        let Part { invocation, run, .. } = &*self.0;
        run.channel.tell(invocation, |calls, out| {
            if let Some(delta) = run.untold.take() {
                out.push(EventKind::StateDelta { delta });
            }
            tell(calls, out)
        })
    }

    /// Waits for the reader to make room.
    pub(super) async fn room(&self) -> Result<()> {
        let Run { channel, clock, .. } = &*self.0.run;
        let _wait = clock.pause();
        channel.room().await
    }

    /// The next model call begins.
    pub(super) fn enter_call(&self) -> CallHandle {
        CallHandle::new(self.0.run.channel.clone(), self.name_message())
    }

    fn name_message(&self) -> Arc<str> {
        let run = &self.0.run;
        let number = run.calls.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}", run.name).into()
    }

    /// The time that the run waits for its reader from here on.
    pub(crate) fn reader_wait(&self) -> ReaderWait {
        self.0.run.clock.watch()
    }

    /// A model call is over: what is seen of it becomes what was answered, by the attempt of that
    /// number, if anything was.
    pub(super) async fn settle(&self, call: &CallHandle, answer: Option<(&Message, Option<u32>)>) {
        let settle = |calls: &mut Calls, out: &mut EventBatch<'_>| {
            let id = call.of(calls).settle(answer, out);
            if let (Some(id), Some((message, _))) = (id, answer) {
                lock(&self.0.shown).push(Shown { id, message: message.clone() });
            }
        };
        self.tell_all(settle).await;
    }

    /// A model call was dropped: what is seen of it is void.
    pub(super) fn drop_call(&self, call: &CallHandle) {
        drop(self.push_of(call, |call, out| call.settle(None, out)));
    }

    /// The agent begins with this conversation: what else was seen of it before is void. It has
    /// said what stands from `new_from` on, maybe as another invocation.
    pub(crate) async fn begin(&self, conversation: &Messages, new_from: usize) {
        if let Some(above) = &self.0.conversation {
            let mut above = lock(&above.0.shown);
            let seen = conversation.range(new_from).filter_map(|said| {
                let at = above.iter().position(|shown| look_alike(said, &shown.message))?;
                Some(above.remove(at))
            });
            let seen: Vec<_> = seen.collect();
            drop(above);
            lock(&self.0.shown).extend(seen);
        }
        let mut void = Vec::new();
        lock(&self.0.shown).retain(|shown| {
            let stays = conversation.iter().any(|message| look_alike(message, &shown.message));
            if !stays {
                void.push(shown.id.clone());
            }
            stays
        });
        let tell = |_: &mut Calls, out: &mut EventBatch<'_>| {
            void.into_iter().for_each(|message| out.push(EventKind::AttemptDiscarded { message }));
        };
        self.tell_all(tell).await;
    }

    /// The agent has answered: what is seen of it becomes what it has said.
    pub(crate) async fn answered<'a>(&self, said: impl Iterator<Item = &'a Message>) {
        let said: Vec<_> = said.collect();
        let of_role = |wanted: Role| said.iter().copied().filter(move |it| it.role() == wanted);
        let results: Vec<_> = of_role(Role::Tool).collect();
        let mut said: Vec<_> = of_role(Role::Assistant)
            .filter(|message| message_builder::is_visible(message))
            .collect();
        let mut shown = std::mem::take(&mut *lock(&self.0.shown));
        let mut replaced = Vec::new();
        // The latest first: what is the same twice, and said once, was said last.
        for index in (0..shown.len()).rev() {
            match said.iter().rposition(|message| look_alike(message, &shown[index].message)) {
                Some(at) => drop(said.remove(at)),
                None => replaced.push(shown.remove(index).id),
            }
        }
        let unseen: Vec<_> = said.into_iter().map(|it| (self.name_message(), it)).collect();
        let more = unseen.iter().map(|(id, it)| Shown { id: id.clone(), message: (*it).clone() });
        shown.extend(more);
        self.hand_over(shown);
        let tell = |_: &mut Calls, out: &mut EventBatch<'_>| {
            let replaced = replaced.into_iter().rev();
            replaced.for_each(|message| out.push(EventKind::ResponseReplaced { message }));
            for (id, message) in unseen {
                call::show(id, message, out);
                // What was seen of its calls went with the message that had them.
                let is_of = |id: &str| message.tool_calls().any(|call| &*call.id == id);
                let is_answer = |it: &&&Message| it.tool_results().any(|it| is_of(&it.call_id));
                results.iter().filter(is_answer).for_each(|answer| answers(answer, out));
            }
        };
        self.tell_all(tell).await;
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

fn answers(message: &Message, out: &mut EventBatch<'_>) {
    for result in message.tool_results().cloned() {
        let ToolResult { call_id: id, name, parts, is_error, .. } = result;
        out.push(EventKind::ToolResult { id, name, parts, is_error });
    }
}

impl fmt::Debug for EventEmitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventEmitter").field(&self.0.invocation).finish()
    }
}
