use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::call::{self, Call, CallChannel, CallHandle, Calls};
use super::channel::EventBatch;
use super::consumer_wait::{Clock, ConsumerWait};
use super::event::{EventKind, Invocation};
use super::event_stream::EventStream;
use super::message_builder::{self, look_alike};
use crate::error::Result;
use crate::lock::lock;
use crate::message::{Message, Messages, Role, ToolResult};
use crate::state::{State, Untold};

/// Emits the events of one agent in a streamed run.
#[derive(Clone)]
pub(crate) struct EventEmitter(Arc<Part>);

struct Part {
    invocation: Arc<Invocation>,
    run: Arc<Run>,
    /// The agent whose conversation this one continues, or the run.
    conversation: Option<EventEmitter>,
    shown: Mutex<Vec<Shown>>,
}

/// Data shared by the agents of a run.
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

/// A response that was streamed and not discarded.
struct Shown {
    id: Arc<str>,
    message: Message,
}

impl EventEmitter {
    /// Creates the emitter of the run itself, and the stream of events.
    pub(crate) fn new(name: Arc<str>, state: State, capacity: usize) -> (Self, EventStream) {
        let channel = Arc::new(CallChannel::new(capacity));
        let clock = Arc::<Clock>::default();
        let invocation = Arc::<Invocation>::default();
        let events = EventStream::new(channel.clone(), clock.clone(), invocation.clone());
        let (untold, invocations, calls) = Default::default();
        let run = Arc::new(Run {
            name,
            channel,
            state,
            untold,
            clock,
            invocations,
            calls,
        });
        let shown = Mutex::default();
        (
            Self(Arc::new(Part {
                invocation,
                run,
                conversation: None,
                shown,
            })),
            events,
        )
    }

    /// Creates the emitter of an agent called in this one.
    pub(crate) fn enter(&self, path: Arc<str>, tool_call: Option<Arc<str>>, goes_on: bool) -> Self {
        let Part {
            invocation, run, ..
        } = &*self.0;
        let number = run.invocations.fetch_add(1, Ordering::Relaxed) + 1;
        let id = format!("{}-a{number}", run.name).into();
        let caller = (invocation.number > 0).then(|| invocation.clone());
        let conversation = (goes_on || caller.is_none()).then(|| self.clone());
        let goes_on = goes_on && caller.is_some();
        let tool_call = tool_call.filter(|_| caller.is_some() && !goes_on);
        Self(Arc::new(Part {
            invocation: Arc::new(Invocation {
                id,
                number,
                path,
                caller,
                tool_call,
                goes_on,
            }),
            run: run.clone(),
            conversation,
            shown: Mutex::default(),
        }))
    }

    /// Emits an event; it is kept even if this future is dropped while it waits for the consumer.
    pub(crate) fn tell(&self, kind: EventKind) -> impl Future<Output = ()> {
        self.tell_all(|_, out| out.push(kind))
    }

    /// Emits the whole state, and every change from then on.
    pub(crate) async fn tell_state(&self) {
        let Run { state, untold, .. } = &*self.0.run;
        let tell = |_: &mut Calls, out: &mut EventBatch<'_>| {
            out.push(EventKind::StateSnapshot {
                state: state.watch(untold),
            });
        };
        self.tell_all(tell).await;
    }

    /// Emits the end of the run. Nothing follows it.
    pub(crate) async fn end(&self, kind: EventKind) {
        self.tell_all(|_, out| out.end(kind)).await;
    }

    /// Emits events at once, and then waits until the consumer has made room.
    //
    // Not an async fn, which would store the events.
    fn tell_all(
        &self,
        tell: impl FnOnce(&mut Calls, &mut EventBatch<'_>),
    ) -> impl Future<Output = ()> {
        // Without a consumer there is nothing to do.
        let is_full = matches!(self.push(tell), Ok(((), false)));
        async move {
            if is_full {
                drop(self.room().await);
            }
        }
    }

    /// Emits an event without waiting, for use on drop.
    pub(crate) fn note(&self, kind: EventKind) {
        drop(self.push(|_, out| out.push(kind)));
    }

    /// Emits the tool results in messages of the transcript.
    pub(crate) async fn tell_answers(&self, messages: &[Message]) {
        if !messages.is_empty() {
            self.tell_all(|_, out| messages.iter().for_each(|it| answers(it, out)))
                .await;
        }
    }

    /// Emits a tool result without waiting.
    pub(crate) fn note_answer(&self, message: &Message) {
        drop(self.push(|_, out| answers(message, out)));
    }

    /// Adds events of a model call; returns whether there is still [capacity](Self::room).
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
        let Part {
            invocation, run, ..
        } = &*self.0;
        run.channel.tell(invocation, |calls, out| {
            if let Some(delta) = run.untold.take() {
                out.push(EventKind::StateDelta { delta });
            }
            tell(calls, out)
        })
    }

    /// Waits until the consumer has made room.
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

    /// Returns a counter of the time that the run waits for its consumer from now on.
    pub(crate) fn consumer_wait(&self) -> ConsumerWait {
        self.0.run.clock.watch()
    }

    /// Ends a model call: its visible message becomes the response, from the attempt with that
    /// number, if there was one.
    pub(super) async fn settle(&self, call: &CallHandle, answer: Option<(&Message, Option<u32>)>) {
        let settle = |calls: &mut Calls, out: &mut EventBatch<'_>| {
            let id = call.of(calls).settle(answer, out);
            if let (Some(id), Some((message, _))) = (id, answer) {
                lock(&self.0.shown).push(Shown {
                    id,
                    message: message.clone(),
                });
            }
        };
        self.tell_all(settle).await;
    }

    /// Discards the output of a model call that was dropped.
    pub(super) fn drop_call(&self, call: &CallHandle) {
        drop(self.push_of(call, |call, out| call.settle(None, out)));
    }

    /// Starts the agent with this conversation: other output of it is discarded. The messages from
    /// `new_from` on are its own, perhaps from another invocation.
    pub(crate) async fn begin(&self, conversation: &Messages, new_from: usize) {
        if let Some(above) = &self.0.conversation {
            let mut above = lock(&above.0.shown);
            let seen = conversation.range(new_from).filter_map(|said| {
                let at = above
                    .iter()
                    .position(|shown| look_alike(said, &shown.message))?;
                Some(above.remove(at))
            });
            let seen: Vec<_> = seen.collect();
            drop(above);
            lock(&self.0.shown).extend(seen);
        }
        let mut void = Vec::new();
        lock(&self.0.shown).retain(|shown| {
            let stays = conversation
                .iter()
                .any(|message| look_alike(message, &shown.message));
            if !stays {
                void.push(shown.id.clone());
            }
            stays
        });
        let tell = |_: &mut Calls, out: &mut EventBatch<'_>| {
            void.into_iter()
                .for_each(|message| out.push(EventKind::AttemptDiscarded { message }));
        };
        self.tell_all(tell).await;
    }

    /// Makes the agent's visible messages equal its response.
    pub(crate) async fn answered<'a>(&self, said: impl Iterator<Item = &'a Message>) {
        let said: Vec<_> = said.collect();
        let of_role = |wanted: Role| said.iter().copied().filter(move |it| it.role() == wanted);
        let results: Vec<_> = of_role(Role::Tool).collect();
        let mut said: Vec<_> = of_role(Role::Assistant)
            .filter(|message| message_builder::is_visible(message))
            .collect();
        let mut shown = std::mem::take(&mut *lock(&self.0.shown));
        let mut replaced = Vec::new();
        // Latest first: of equal messages the last one was streamed last.
        for index in (0..shown.len()).rev() {
            match said
                .iter()
                .rposition(|message| look_alike(message, &shown[index].message))
            {
                Some(at) => drop(said.remove(at)),
                None => replaced.push(shown.remove(index).id),
            }
        }
        let unseen: Vec<_> = said
            .into_iter()
            .map(|it| (self.name_message(), it))
            .collect();
        let more = unseen.iter().map(|(id, it)| Shown {
            id: id.clone(),
            message: (*it).clone(),
        });
        shown.extend(more);
        self.hand_over(shown);
        let tell = |_: &mut Calls, out: &mut EventBatch<'_>| {
            let replaced = replaced.into_iter().rev();
            replaced.for_each(|message| out.push(EventKind::ResponseReplaced { message }));
            for (id, message) in unseen {
                call::show(id, message, out);
                // The output of its calls was discarded with the message.
                let is_of = |id: &str| message.tool_calls().any(|call| &*call.id == id);
                let is_answer = |it: &&&Message| it.tool_results().any(|it| is_of(&it.call_id));
                results
                    .iter()
                    .filter(is_answer)
                    .for_each(|answer| answers(answer, out));
            }
        };
        self.tell_all(tell).await;
    }

    /// Handles an agent that has failed or was dropped. Its output is discarded if another response
    /// replaces it.
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
        let ToolResult {
            call_id: id,
            name,
            parts,
            is_error,
            ..
        } = result;
        out.push(EventKind::ToolResult {
            id,
            name,
            parts,
            is_error,
        });
    }
}

impl fmt::Debug for EventEmitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventEmitter")
            .field(&self.0.invocation)
            .finish()
    }
}
