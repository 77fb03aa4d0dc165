use std::sync::Arc;

use super::node;
use crate::conversation::{CallName, ConversationRecord, OrderedMessages, Paused, Transcript};
use crate::message::{Message, Messages};

/// The place of an agent's messages.
#[derive(Clone, Default)]
pub(crate) struct RecordPlace {
    pub(crate) record: ConversationRecord,
    /// The path from the agent that opened the record to this one.
    path: Arc<str>,
    /// The path of the parallel team that the record is for; empty for any other agent.
    above: Arc<str>,
    /// The number of messages when this agent joined; `None` if it opened the record.
    joined: Option<usize>,
}

/// The agent that continues a conversation.
#[derive(Debug)]
pub(crate) enum WhoseTurn {
    Own,
    /// The agent with this name, inside this one.
    Of(Arc<str>),
    /// An agent elsewhere.
    Others(Arc<str>),
    /// Unknown, because there are only messages.
    Unknown,
}

impl RecordPlace {
    /// Returns the place of an agent that opens this record, for the team at this path if it is a
    /// member of a parallel one.
    pub(super) fn opened(record: ConversationRecord, agent: &str, above: Arc<str>) -> Self {
        Self {
            record,
            path: agent.into(),
            above,
            joined: None,
        }
    }

    /// Returns the place of an agent that continues this one's conversation from this message on.
    pub(super) fn joined(&self, agent: &str, at: usize) -> Self {
        Self {
            joined: Some(at),
            ..self.taken_over(agent)
        }
    }

    pub(super) fn taken_over(&self, agent: &str) -> Self {
        Self {
            path: self.below(agent),
            ..self.clone()
        }
    }

    pub(crate) fn has_opened(&self) -> bool {
        self.joined.is_none()
    }

    /// Returns the author of what the agent says; `None` if no other speaks in its conversation.
    pub(crate) fn author(&self, has_others: bool) -> Option<Arc<str>> {
        let is_shared = has_others || !self.above.is_empty() || self.path.contains('/');
        is_shared.then(|| self.author_path())
    }

    /// Returns the agent's path from the one whose conversation this is.
    pub(crate) fn author_path(&self) -> Arc<str> {
        if self.above.is_empty() {
            return self.path.clone();
        }
        node::below(&self.above, &self.path)
    }

    /// Makes the loop of the agent go on in these messages, to which others have added.
    pub(crate) fn write_on(&self, messages: OrderedMessages) -> Transcript {
        Transcript::reopened(&self.record, messages)
    }

    /// Returns the conversation of the agent, which has this request and may have started before.
    pub(crate) fn begin(&self, request: &Messages) -> OrderedMessages {
        self.record.begin(&self.path, request, self.joined)
    }

    pub(crate) fn write(&self, request: &Messages) -> Transcript {
        Transcript::new(&self.record, &self.path, request, self.joined)
    }

    pub(crate) fn responded(&self, request: &Messages) {
        self.record.responded(self.path.clone(), request.clone());
    }

    /// Returns which agent continues, as seen from this one.
    pub(crate) fn turn(&self) -> WhoseTurn {
        let Some(turn) = self.record.turn_of() else {
            return WhoseTurn::Unknown;
        };
        match turn.strip_prefix(&*self.path) {
            Some("") => WhoseTurn::Own,
            Some(below) if below.starts_with('/') => {
                WhoseTurn::Of(below[1..].split('/').next().unwrap_or_default().into())
            }
            _ => WhoseTurn::Others(turn),
        }
    }

    /// Makes this agent the one that continues, from this message on.
    pub(crate) fn take_turn(&self, from: usize) {
        // If it is its turn already, it goes on where the run has paused.
        if !matches!(self.turn(), WhoseTurn::Own) {
            self.record.give_turn(self.path.clone(), from);
        }
    }

    pub(crate) fn give_turn(&self, agent: &str, from: usize) {
        self.record.give_turn(self.below(agent), from);
    }

    pub(crate) fn round(&self) -> u32 {
        self.record.round(&self.path)
    }

    pub(crate) fn begin_round(&self, round: u32) {
        self.record.begin_round(self.path.clone(), round);
    }

    /// Returns how far the agent had come, if the run goes on with one that has paused in it.
    pub(crate) fn paused(&self) -> Option<Paused> {
        let paused = self.record.paused()?;
        matches!(self.turn(), WhoseTurn::Own).then_some(paused)
    }

    /// Returns the path of an agent that works for this one in its record, or in one held there.
    pub(crate) fn below(&self, agent: &str) -> Arc<str> {
        node::below(&self.path, agent)
    }

    /// Returns the conversation of an agent in this tool call. With another request it starts over.
    pub(crate) fn working(
        &self,
        call: Option<CallName>,
        agent: &str,
        first: &Message,
    ) -> ConversationRecord {
        let at = match call {
            Some(call) => format!("{call}/{agent}"),
            None => self.below(agent).to_string(),
        };
        let held = self.record.held(&at);
        held.filter(|held| held.request().get(0).is_none_or(|earlier| earlier == first))
            .unwrap_or_else(|| {
                let record = ConversationRecord::default();
                self.record.hold(at, record.clone());
                record
            })
    }
}
