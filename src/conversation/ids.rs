//! The ids of a conversation's messages.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::message::{IdPart, Message, MessageId, Messages, Role};

#[derive(Debug, Default)]
pub(super) struct IdMint {
    /// The part that they share. `None` until an agent opens the conversation.
    pub(super) prefix: Option<Arc<str>>,
    /// The number of the next one. It only grows, also in later runs of the conversation: an id
    /// that was discarded is not used again.
    pub(super) next: u32,
    /// Later numbers that messages of the request have, whoever has named these.
    pub(super) taken: BTreeSet<u32>,
}

impl IdMint {
    pub(super) fn mint(&mut self) -> MessageId {
        while self.taken.remove(&self.next) {
            self.next = self.next.saturating_add(1);
        }
        let number = self.next;
        self.next = self.next.saturating_add(1);
        // A conversation that no agent has opened is in no stream and in no store.
        let prefix = self.prefix.get_or_insert_with(|| Arc::from("draft"));
        MessageId::minted(prefix, number)
    }

    /// Gives an id to each message of the request that opens the conversation for the first time.
    pub(super) fn open(&mut self, request: &mut Messages) {
        let is_first = self.next == 0;
        if is_first {
            self.pass_over(request);
        }
        // Whoever calls the agent has written them, or has them from an earlier run.
        self.identify(request, |id| id);
        if is_first {
            // The number of the first response does not depend on who has named the messages
            // before it. A conversation that is resumed goes on where it was.
            let length = u32::try_from(request.len()).unwrap_or(u32::MAX);
            self.next = self.next.max(length);
        }
    }

    /// Notes the numbers of ids that this would mint, and messages of the request have.
    pub(super) fn note_taken(&mut self, request: &Messages) {
        let Some(prefix) = &self.prefix else { return };
        let ids = request.iter().filter_map(Message::id);
        let numbers = ids.filter_map(|id| id.number_in(prefix));
        self.taken = numbers.filter(|number| *number >= self.next).collect();
    }

    /// Passes over the numbers of these messages, of a conversation whose next number is unknown.
    fn pass_over(&mut self, messages: &Messages) {
        for message in messages {
            // A client chooses the ids of its own messages, and no calls hang on those.
            if message.role() == Role::Assistant
                && let Some(number) = message.id().and_then(MessageId::number)
            {
                self.next = self.next.max(number.saturating_add(1));
            }
        }
    }

    /// Gives an id to each message that has none, which a callback or a layer has added. Its id
    /// says so: whoever reads it later must not take it for the user's own.
    pub(super) fn identify_added(&mut self, messages: &mut Messages) {
        self.identify(messages, |id| id.part(IdPart::Added));
    }

    fn identify(&mut self, messages: &mut Messages, name: impl Fn(MessageId) -> MessageId) {
        while !messages.note_identified() {
            let id = name(self.mint());
            if let Some(message) = messages.get_mut(messages.identified()) {
                message.set_id(id);
            }
        }
    }
}
