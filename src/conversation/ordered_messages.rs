//! Messages in the two orders that a conversation has.

use super::repair::note_whole;
use crate::message::{Message, Messages};

/// Messages in the order in which they came, and with the results of each turn in the order of its
/// calls. The two differ where a turn has got its results in parts: a run that resumes it adds some
/// after those that it had, and members of a parallel team finish in any order.
///
/// The first order is that of indices: the new messages of a run are those from an index on. Models
/// receive and stores keep the second.
#[derive(Clone, Debug, Default)]
pub(crate) struct OrderedMessages {
    arrived: Messages,
    /// `None` while the two orders are the same.
    in_call_order: Option<Messages>,
}

impl OrderedMessages {
    /// Puts messages in the order of their calls, looking at the turn that goes on at index `from`,
    /// and at all after it.
    pub(crate) fn new(arrived: Messages, from: usize) -> Self {
        let in_call_order = arrived.in_call_order(from);
        Self {
            arrived,
            in_call_order,
        }
    }

    pub(crate) fn arrived(&self) -> &Messages {
        &self.arrived
    }

    pub(crate) fn into_arrived(self) -> Messages {
        self.arrived
    }

    pub(crate) fn in_call_order(&self) -> &Messages {
        self.in_call_order.as_ref().unwrap_or(&self.arrived)
    }

    /// Returns the messages for an agent that continues them, in the order of the calls, and notes
    /// what is known of them: each agent of a team then looks only at what is new since the one
    /// before.
    pub(crate) fn hand_over(&mut self) -> Messages {
        let messages = self.in_call_order.as_mut().unwrap_or(&mut self.arrived);
        messages.note_identified();
        if messages.all_in_call_order().is_none() {
            note_whole(messages);
        }
        messages.clone()
    }

    pub(crate) fn is_reordered(&self) -> bool {
        self.in_call_order.is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.arrived.len()
    }

    /// Adds a message. Results are [put in order](Self::order_last) after that.
    pub(crate) fn push(&mut self, message: Message) {
        if let Some(ordered) = &mut self.in_call_order {
            ordered.push(message.clone());
        }
        self.arrived.push(message);
    }

    /// Puts this many messages at the end in the order of the calls, with the turn that they go on.
    pub(crate) fn order_last(&mut self, added: usize) {
        let from = self.len().saturating_sub(added);
        if let Some(ordered) = self.in_call_order().in_call_order(from) {
            self.in_call_order = Some(ordered);
        }
    }
}

impl From<Messages> for OrderedMessages {
    /// Takes messages whose results stand in the order of their calls.
    fn from(messages: Messages) -> Self {
        Self {
            arrived: messages,
            in_call_order: None,
        }
    }
}
