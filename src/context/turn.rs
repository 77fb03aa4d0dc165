//! An agent's part in the conversation that it works on.

use std::sync::Arc;

use super::run::RecordPlace;
use super::{Record, RunContext, Transcript};
use crate::message::{Message, Messages};

/// Whose turn it is in a conversation that goes on.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The agent's own.
    Own,
    /// That of an agent of this name, which works for it.
    Of(Arc<str>),
    /// That of an agent elsewhere.
    Others(Arc<str>),
    /// There are messages alone, which do not say.
    Unknown,
}

impl RunContext {
    /// The handle for an agent that opens this record. There is one to the handle yet.
    pub(crate) fn opening(mut self, record: Record) -> Self {
        if let Some(scope) = Arc::get_mut(&mut self.scope) {
            let path = scope.name().into();
            scope.place = RecordPlace { record, path, joined: None };
        }
        self
    }

    /// The handle for an agent that goes on with its caller's conversation, from so many messages
    /// on.
    pub(crate) fn joining(mut self, caller: &Self, joined: usize) -> Self {
        if let Some(scope) = Arc::get_mut(&mut self.scope) {
            let above = &caller.scope.place;
            let (record, path) = (above.record.clone(), above.below(scope.name()));
            scope.place = RecordPlace { record, path, joined: Some(joined) };
        }
        self
    }

    /// Where this agent writes down what is said.
    pub(crate) fn record(&self) -> &Record {
        &self.scope.place.record
    }

    /// The handle for an agent that is called in the place of this one, or of what is left of it.
    pub(crate) fn replacing(mut self, caller: &Self) -> Self {
        if let Some(scope) = Arc::get_mut(&mut self.scope) {
            let above = &caller.scope.place;
            scope.place = RecordPlace { path: above.below(scope.name()), ..above.clone() };
        }
        self
    }

    /// The conversation of this agent, which was asked this and may have begun before.
    pub(crate) fn begin(&self, asked: &Messages) -> Messages {
        let RecordPlace { record, path, joined } = &self.scope.place;
        record.begin(path, asked, *joined)
    }

    /// The record of this agent's loop, for that to write.
    pub(crate) fn write(&self, asked: &Messages) -> Transcript {
        let RecordPlace { record, path, joined } = &self.scope.place;
        record.write(path, asked, *joined)
    }

    /// The loop of this agent, which was asked this, has answered.
    pub(crate) fn answered(&self, asked: &Messages) {
        self.record().answered(self.scope.place.path.clone(), asked.clone());
    }

    /// Whose turn it is in the conversation, as far as this agent is concerned.
    pub(crate) fn turn(&self) -> Turn {
        let RecordPlace { record, path, .. } = &self.scope.place;
        let Some(turn) = record.turn_of() else { return Turn::Unknown };
        match turn.strip_prefix(&**path) {
            Some("") => Turn::Own,
            Some(below) if below.starts_with('/') => {
                Turn::Of(below[1..].split('/').next().unwrap_or_default().into())
            }
            _ => Turn::Others(turn),
        }
    }

    /// It is this agent's turn.
    pub(crate) fn take_turn(&self) {
        self.record().give_turn(self.scope.place.path.clone());
    }

    /// It is the turn of an agent that goes on with this one's conversation.
    pub(crate) fn give_turn(&self, agent: &str) {
        self.record().give_turn(self.scope.place.below(agent));
    }

    /// Where the conversation is held of an agent that works in this tool call, or side by side
    /// with others in this team.
    pub(crate) fn holds(&self, agent: &str) -> String {
        match &self.tool_call {
            Some(call) if !self.scope.is_in(call) => format!("{}/{agent}", call.name),
            _ => self.scope.place.below(agent).to_string(),
        }
    }

    /// The conversation of an agent that works in this tool call and is asked this. Asked something
    /// else than before, it begins anew.
    pub(crate) fn working(&self, agent: &str, asked: &Message) -> Record {
        let at = self.holds(agent);
        let held = self.record().held(&at);
        held.filter(|held| held.asked().get(0).is_none_or(|it| it == asked)).unwrap_or_else(|| {
            let record = Record::default();
            self.record().hold(at, record.clone());
            record
        })
    }

    /// Whether this agent has opened its record.
    pub(crate) fn has_opened(&self) -> bool {
        self.scope.place.joined.is_none()
    }

    /// Whether no agent works above this one.
    pub(crate) fn is_outermost(&self) -> bool {
        self.scope.is_outermost()
    }
}
