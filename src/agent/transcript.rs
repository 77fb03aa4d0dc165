//! The conversation of the loop, as it stands.

use std::sync::{Arc, Mutex};

use crate::context::{Record, RunContext, Slot};
use crate::lock::lock;
use crate::message::{Message, Messages};

/// What was said so far, as the model is told it. Whatever a reader is told of stands here before,
/// and in the run's record.
///
/// The tools of a turn answer side by side, and each answer is kept where it is made: a call that
/// is dropped while its reader is slow has still answered.
pub(super) struct Transcript {
    record: Record,
    /// All of it, but for the answers of a turn that is under way.
    messages: Mutex<Messages>,
}

impl Transcript {
    /// That of an agent that was asked this.
    pub(super) fn new(context: &RunContext, asked: &Messages) -> Self {
        let claimed = context.record().claim(asked);
        let is_claimed = claimed.is(context.record());
        let messages = if is_claimed { context.begin(asked) } else { asked.clone() };
        Self { record: claimed, messages: Mutex::new(messages) }
    }

    pub(super) fn messages(&self) -> Messages {
        self.read(Messages::clone)
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&Messages) -> T) -> T {
        read(&lock(&self.messages))
    }

    pub(super) fn push(&self, message: Message) {
        self.record.push(message.clone());
        lock(&self.messages).push(message);
    }

    /// These tool calls are made.
    pub(super) fn begin_turn<'a>(&self, calls: impl Iterator<Item = &'a Arc<str>>) {
        self.record.begin_turn(calls);
    }

    /// Keeps what has become of a call.
    pub(super) fn keep(&self, call: usize, slot: Slot) {
        self.record.keep(call, slot);
    }

    /// Keeps that a call has failed the run, with this for an answer unless it has one or can go
    /// on. Returns what it is answered.
    pub(super) fn fail(&self, call: usize, answer: Message) -> Vec<Message> {
        self.record.fail(call, answer)
    }

    /// The turn is over. Returns the answers of the calls that have begun and were dropped.
    pub(super) fn end_turn(&self) -> Vec<Message> {
        let (said, stopped) = self.record.end_turn();
        lock(&self.messages).extend(said);
        stopped
    }
}

impl Drop for Transcript {
    fn drop(&mut self) {
        self.record.leave();
    }
}
