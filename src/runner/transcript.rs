//! The conversation of the loop, as it stands.

use std::sync::{Arc, Mutex};

use super::run::refusal;
use crate::lock::lock;
use crate::message::{Message, Messages, Role, ToolCall};

/// What the model is told of a call that was dropped while it ran.
const STOPPED: &str = "stopped: the run ended while this tool was running, and what it has done is \
                       not known";

/// What was said so far. Whatever a reader is told of stands here before.
///
/// The tools of a turn answer side by side, and each answer is kept where it is made: a call that
/// is dropped while its reader is slow has still answered.
#[derive(Clone, Default)]
pub(super) struct Transcript(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    messages: Messages,
    /// The calls of the turn that is under way, in the model's order.
    turn: Vec<Slot>,
}

/// What is known of one call of a turn.
#[derive(Clone, Default)]
pub(super) enum Slot {
    /// It has not begun, or it waits for an answer from outside: a run that resumes makes it.
    #[default]
    Open,
    /// It has begun, and may have had an effect: made again, it might have two. If it does not end,
    /// this is its answer.
    Begun(ToolCall),
    /// One message, nearly always.
    Answered(Message),
    Several(Vec<Message>),
}

impl Slot {
    pub(super) fn answers(&self) -> &[Message] {
        match self {
            Self::Open | Self::Begun(_) => &[],
            Self::Answered(message) => std::slice::from_ref(message),
            Self::Several(messages) => messages,
        }
    }
}

impl Inner {
    /// Answers the calls that have begun and not ended.
    fn stop(&mut self) -> Vec<Message> {
        let mut stopped = Vec::new();
        for slot in &mut self.turn {
            if let Slot::Begun(call) = slot {
                let answer = refusal(call, STOPPED);
                stopped.push(answer.clone());
                *slot = Slot::Answered(answer);
            }
        }
        stopped
    }

    /// Puts what the turn has come to behind the other messages.
    fn settle(&mut self) {
        let turn = std::mem::take(&mut self.turn);
        let said = || turn.iter().flat_map(Slot::answers);
        let is_answer = |message: &&Message| message.role() == Role::Tool;
        // Answers stand together, right behind their calls.
        self.messages.extend(said().filter(is_answer).cloned());
        // Another's words would end the turn, and with it the calls that are still open.
        let is_open = turn.iter().any(|slot| matches!(slot, Slot::Open));
        let others = said().filter(|message| !is_answer(message));
        self.messages.extend(others.map(|message| match is_open {
            true => Message::new(Role::Tool, message.parts().iter().cloned()),
            false => message.clone(),
        }));
    }
}

impl Transcript {
    pub(super) fn new(messages: Messages) -> Self {
        Self(Arc::new(Mutex::new(Inner { messages, turn: Vec::new() })))
    }

    /// All that was said, but for the answers of a turn that is under way.
    pub(super) fn messages(&self) -> Messages {
        self.read(Messages::clone)
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&Messages) -> T) -> T {
        read(&lock(&self.0).messages)
    }

    pub(super) fn push(&self, message: Message) {
        lock(&self.0).messages.push(message);
    }

    /// So many tool calls are made.
    pub(super) fn begin_turn(&self, calls: usize) {
        lock(&self.0).turn = vec![Slot::Open; calls];
    }

    /// Keeps what has become of a call.
    pub(super) fn keep(&self, call: usize, slot: Slot) {
        if let Some(kept) = lock(&self.0).turn.get_mut(call) {
            *kept = slot;
        }
    }

    /// The turn is over. Returns the answers of the calls that have begun and were dropped.
    pub(super) fn end_turn(&self) -> Vec<Message> {
        let mut inner = lock(&self.0);
        let stopped = inner.stop();
        inner.settle();
        stopped
    }
}
