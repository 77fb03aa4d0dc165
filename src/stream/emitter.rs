use std::future::Future;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

use super::call::{self, CallChannel, CallHandle, Calls, VisibleCall};
use super::channel::EventBatch;
use super::consumer_wait::{Clock, ConsumerWait};
use super::event::{EventKind, Invocation, ToolCallResult};
use super::event_stream::EventStream;
use super::message_builder::{self, shows_same};
use crate::conversation::CallName;
use crate::error::Result;
use crate::lock::lock;
use crate::message::{Message, MessageId, Messages, Role, ToolResult};
use crate::state::{State, Untold};

/// Emits the events of one agent in a streamed run.
#[derive(Clone)]
pub(crate) struct EventEmitter(Arc<EmitterInner>);

struct EmitterInner {
    invocation: Arc<Invocation>,
    run: Arc<StreamedRun>,
    /// The agent whose conversation this one continues, or the run.
    conversation: Option<EventEmitter>,
    shown: Mutex<Vec<Message>>,
}

struct StreamedRun {
    name: Arc<str>,
    channel: Arc<CallChannel>,
    state: State,
    untold: Arc<Untold>,
    clock: Arc<Clock>,
    invocations: AtomicU32,
}

impl Drop for StreamedRun {
    fn drop(&mut self) {
        // The last handle is gone, in whichever task: nothing can follow.
        self.channel.end();
        self.state.unwatch(&self.untold);
    }
}

impl EventEmitter {
    /// Creates the emitter of the run itself, and the stream of events.
    pub(crate) fn new(name: Arc<str>, state: State, capacity: usize) -> (Self, EventStream) {
        let channel = Arc::new(CallChannel::new(capacity));
        let clock = Arc::<Clock>::default();
        let invocation = Arc::<Invocation>::default();
        let events = EventStream::new(channel.clone(), clock.clone(), invocation.clone());
        let run = Arc::new(StreamedRun {
            name,
            channel,
            state,
            untold: Arc::default(),
            clock,
            invocations: AtomicU32::new(0),
        });
        let part = EmitterInner {
            invocation,
            run,
            conversation: None,
            shown: Mutex::default(),
        };
        (Self(Arc::new(part)), events)
    }

    pub(crate) fn enter(&self, path: Arc<str>, tool_call: Option<Arc<str>>, goes_on: bool) -> Self {
        let EmitterInner {
            invocation, run, ..
        } = &*self.0;
        let caller = (invocation.number > 0).then(|| invocation.clone());
        let conversation = (goes_on || caller.is_none()).then(|| self.clone());
        let count = &run.invocations;
        Self(Arc::new(EmitterInner {
            invocation: Invocation::next(&run.name, count, path, caller, tool_call, goes_on),
            run: run.clone(),
            conversation,
            shown: Mutex::default(),
        }))
    }

    /// Emits an event; it is kept even if this future is dropped while it waits for the consumer.
    pub(crate) fn emit(&self, kind: EventKind) -> impl Future<Output = ()> {
        self.emit_all(|_, out| out.push(kind))
    }

    /// Emits the whole state, and every change from then on.
    pub(crate) async fn emit_state(&self) {
        let StreamedRun { state, untold, .. } = &*self.0.run;
        let add = |_: &mut Calls, out: &mut EventBatch<'_>| {
            out.push(EventKind::StateSnapshot {
                // Under the lock of the channel, so that a change is in this snapshot or in a delta
                // after it.
                state: state.watch(untold),
            });
        };
        self.emit_all(add).await;
    }

    /// Emits the end of the run. Nothing follows it, so nobody waits for room: the run has its
    /// result before the consumer can read the event.
    pub(crate) fn end(&self, kind: EventKind) {
        drop(self.push(|_, out| out.end(kind)));
    }

    /// Emits events at once, and then waits until the consumer has made room.
    //
    // Not an async fn, which would store the events.
    fn emit_all(
        &self,
        add: impl FnOnce(&mut Calls, &mut EventBatch<'_>),
    ) -> impl Future<Output = ()> {
        let pushed = self.push(add);
        self.made_room(&pushed)
    }

    /// Waits until the consumer has made room, if the events left none.
    fn made_room<'a>(&'a self, pushed: &Result<((), bool)>) -> impl Future<Output = ()> + use<'a> {
        // Without a consumer there is nothing to do.
        let is_full = matches!(pushed, Ok(((), false)));
        async move {
            if is_full {
                drop(self.room().await);
            }
        }
    }

    /// Emits the results in the messages that a tool call has brought; they are kept even if this
    /// future is dropped.
    pub(super) fn emit_results<'a>(
        &'a self,
        call: &CallName,
        messages: &[Message],
    ) -> impl Future<Output = ()> + use<'a> {
        let pushed = self.push(|_, out| {
            for message in messages {
                push_results(call, message, out);
            }
        });
        // Not by `emit_all`, whose future would borrow the messages.
        self.made_room(&pushed)
    }

    /// Adds events of a model call; returns whether there is still [capacity](Self::room).
    #[inline]
    pub(super) fn push_of<T>(
        &self,
        call: &CallHandle,
        add: impl FnOnce(&mut VisibleCall, &mut EventBatch<'_>) -> T,
    ) -> Result<(T, bool)> {
        self.push(|calls, out| add(call.of(calls), out))
    }

    #[inline]
    fn push<T>(&self, add: impl FnOnce(&mut Calls, &mut EventBatch<'_>) -> T) -> Result<(T, bool)> {
        let EmitterInner {
            invocation, run, ..
        } = &*self.0;
        run.channel.add(invocation, |calls, out| {
            // First, since the event may be about what has changed.
            if let Some(delta) = run.untold.take() {
                out.push(EventKind::StateDelta { delta });
            }
            add(calls, out)
        })
    }

    pub(super) async fn room(&self) -> Result<()> {
        let StreamedRun { channel, clock, .. } = &*self.0.run;
        // Held until the wait ends, or is dropped.
        let _wait = clock.pause();
        channel.room().await
    }

    pub(super) fn enter_call(&self, id: MessageId) -> CallHandle {
        CallHandle::new(self.0.run.channel.clone(), id)
    }

    pub(crate) fn invocation(&self) -> &Arc<Invocation> {
        &self.0.invocation
    }

    /// Returns the prefix of the ids in the stream.
    pub(crate) fn run_name(&self) -> &Arc<str> {
        &self.0.run.name
    }

    pub(crate) fn consumer_wait(&self) -> ConsumerWait {
        self.0.run.clock.watch()
    }

    pub(super) async fn settle(&self, call: &CallHandle, answer: Option<(&Message, Option<u32>)>) {
        let settle = |calls: &mut Calls, out: &mut EventBatch<'_>| {
            call.of(calls).settle(answer, out);
            if let Some((message, _)) = answer
                && message_builder::is_visible(message)
            {
                // Inside the lock of the channel. Nowhere is the channel's taken inside this one.
                lock(&self.0.shown).push(message.clone());
            }
        };
        self.emit_all(settle).await;
    }

    /// Starts the agent with this conversation: other output of it is discarded. The messages from
    /// `new_from` on are its own, perhaps from another invocation.
    pub(crate) async fn begin(&self, conversation: &Messages, new_from: usize) {
        if let Some(above) = &self.0.conversation {
            let is_own = |shown: &mut Message| {
                let mut new = conversation.range(new_from);
                new.any(|message| is_shown_as(message, shown))
            };
            let own: Vec<_> = lock(&above.0.shown).extract_if(.., is_own).collect();
            lock(&self.0.shown).extend(own);
        }
        let is_discarded = |shown: &mut Message| {
            let mut messages = conversation.iter();
            !messages.any(|message| is_shown_as(message, shown))
        };
        let discarded: Vec<_> = lock(&self.0.shown).extract_if(.., is_discarded).collect();
        let add = |_: &mut Calls, out: &mut EventBatch<'_>| {
            for message in discarded.iter().filter_map(Message::id) {
                out.push(EventKind::AttemptDiscarded {
                    message: message.to_shared(),
                    error: None,
                    usage: Box::default(),
                });
            }
        };
        self.emit_all(add).await;
    }

    /// Counts messages as shown that an earlier run has shown, and has [held](Self::hold).
    pub(crate) fn resume(&self, messages: &Messages) {
        let mut shown = lock(&self.0.shown);
        for message in messages {
            if message.role() == Role::Assistant
                && message_builder::is_visible(message)
                && !shown.iter().any(|shown| shown.id() == message.id())
            {
                shown.push(message.clone());
            }
        }
    }

    /// Leaves these messages visible: they join the conversation in a later run.
    pub(crate) fn hold<'a>(&self, messages: impl Iterator<Item = &'a Message>) {
        let mut shown = lock(&self.0.shown);
        for message in messages {
            shown.retain(|shown| !is_shown_as(message, shown));
        }
    }

    /// Returns the indices of messages that were shown otherwise, and need ids of their own.
    pub(crate) fn shown_otherwise<'a>(
        &self,
        messages: impl Iterator<Item = (usize, &'a Message)>,
    ) -> Vec<usize> {
        let shown = lock(&self.0.shown);
        let mut shown = InOrder::new(&shown);
        // Results of tools are no responses, and were shown as they are.
        let own = messages.filter(|(_, message)| message.role() == Role::Assistant);
        let changed = own.filter_map(|(index, message)| {
            let same = shown.find(|shown| shown.id() == message.id())?;
            (!shows_same(same, message)).then_some(index)
        });
        changed.collect()
    }

    /// Makes the agent's visible messages equal its response.
    pub(crate) async fn answered<'a>(&self, response: impl Iterator<Item = &'a Message>) {
        let response: Vec<_> = response.collect();
        let shown = std::mem::take(&mut *lock(&self.0.shown));
        let mut in_response = InOrder::new(&response);
        let stays = |shown: &Message| {
            let same = in_response.find(|message| is_shown_as(message, shown));
            same.is_some()
        };
        let (stays, replaced): (Vec<_>, Vec<_>) = shown.into_iter().partition(stays);
        let mut in_shown = InOrder::new(&stays);
        let is_unseen = |message: &&Message| {
            message.role() == Role::Assistant
                && message_builder::is_visible(message)
                && in_shown.find(|shown| shown.id() == message.id()).is_none()
        };
        let unseen: Vec<_> = response.iter().copied().filter(is_unseen).collect();
        let mut shown = stays;
        shown.extend(unseen.iter().copied().cloned());
        self.hand_over(shown);
        let add = |_: &mut Calls, out: &mut EventBatch<'_>| {
            for message in replaced.iter().filter_map(Message::id) {
                out.push(EventKind::ResponseReplaced {
                    message: message.to_shared(),
                });
            }
            for message in unseen {
                let Some(id) = message.id() else {
                    continue;
                };
                call::show(id, message, out);
                // The output of its calls was discarded with the message.
                for (index, tool_call) in message.tool_calls().enumerate() {
                    let call = CallName {
                        message: id.clone(),
                        index,
                    };
                    let is_answer = |answer: &&&Message| {
                        answer
                            .tool_results()
                            .any(|result| result.call_id == tool_call.id)
                    };
                    for answer in response.iter().filter(is_answer) {
                        push_results(&call, answer, out);
                    }
                }
            }
        };
        self.emit_all(add).await;
    }

    /// Handles an agent that failed or was dropped: another response may replace its output.
    pub(crate) fn failed(&self) {
        let shown = std::mem::take(&mut *lock(&self.0.shown));
        self.hand_over(shown);
    }

    fn hand_over(&self, mut shown: Vec<Message>) {
        // The agent above decides: its own response may show these messages, or others.
        let conversation = self.0.conversation.as_ref().unwrap_or(self);
        lock(&conversation.0.shown).append(&mut shown);
    }
}

fn is_shown_as(message: &Message, shown: &Message) -> bool {
    message.id() == shown.id() && shows_same(message, shown)
}

/// Finds the elements of a list, nearly always in its order: a search begins after the last one.
struct InOrder<'a, T> {
    list: &'a [T],
    from: usize,
}

impl<'a, T> InOrder<'a, T> {
    fn new(list: &'a [T]) -> Self {
        Self { list, from: 0 }
    }

    fn find(&mut self, is_it: impl Fn(&T) -> bool) -> Option<&'a T> {
        let (earlier, later) = self.list.split_at(self.from);
        let index = match later.iter().position(&is_it) {
            Some(index) => self.from + index,
            None => earlier.iter().position(&is_it)?,
        };
        self.from = index + 1;
        self.list.get(index)
    }
}

fn push_results(call: &CallName, message: &Message, out: &mut EventBatch<'_>) {
    results(call, message).for_each(|result| out.push(result));
}

pub(super) fn results(call: &CallName, message: &Message) -> impl Iterator<Item = EventKind> {
    message.tool_results().cloned().map(|result| {
        let answered_by = result.answered_by().to_vec();
        let ToolResult {
            call_id,
            name,
            parts,
            is_error,
            is_error_text,
            ..
        } = result;
        let message = message.id().map(MessageId::to_shared);
        EventKind::ToolResult(Box::new(ToolCallResult {
            id: call.in_stream(),
            call_id,
            message: message.unwrap_or_default(),
            name,
            parts,
            is_error,
            is_error_text,
            answered_by,
        }))
    })
}
