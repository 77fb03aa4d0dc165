//! An agent's part in its conversation.

use std::sync::Arc;

use super::run::RecordPlace;
use super::run_context::RunContext;
use crate::conversation::{Checkpoint, ConversationRecord, OrderedMessages, Paused, Transcript};
use crate::message::{Message, Messages};

/// The agent that continues a conversation.
#[derive(Debug)]
pub(crate) enum WhoseTurn {
    /// This agent.
    Own,
    /// The agent with this name, inside this one.
    Of(Arc<str>),
    /// An agent elsewhere.
    Others(Arc<str>),
    /// Unknown, because there are only messages.
    Unknown,
}

impl RunContext {
    /// Returns the context of an agent that opens this record. The context has no other clones yet.
    pub(crate) fn opening(mut self, record: ConversationRecord) -> Self {
        // Always: the context has no clones yet.
        if let Some(scope) = Arc::get_mut(&mut self.scope) {
            let path = scope.name().into();
            scope.place = RecordPlace {
                record,
                path,
                joined: None,
            };
        }
        self
    }

    /// Numbers an agent that is about to open a conversation of its own.
    pub(crate) fn counted(mut self) -> Self {
        if let Some(scope) = Arc::get_mut(&mut self.scope) {
            scope.count();
        }
        self
    }

    /// Returns the part that the ids of a conversation's messages share: the same whenever this run
    /// is made, and another one for every other conversation of the run. `caller` is the context in
    /// which the agent that opens it was called.
    pub(crate) fn id_prefix(&self, caller: &Self) -> Arc<str> {
        let run = match caller.emitter() {
            Some(emitter) => emitter.run_name(),
            None => &self.scope.run.id,
        };
        if self.is_outermost() {
            return match self.scope.run.next_conversation() {
                // Most runs have one conversation, whose ids then need no number.
                0 => run.clone(),
                number => format!("{run}+{number}").into(),
            };
        }
        format!("{run}/{}", self.step_path()).into()
    }

    /// Returns the context of an agent that continues its caller's conversation from this message
    /// on.
    pub(crate) fn joining(mut self, caller: &Self, joined: usize) -> Self {
        if let Some(scope) = Arc::get_mut(&mut self.scope) {
            let above = &caller.scope.place;
            let record = above.record.clone();
            let path = above.below(scope.name());
            scope.place = RecordPlace {
                record,
                path,
                joined: Some(joined),
            };
        }
        self
    }

    /// Returns the checkpoint of a running or ended run.
    pub(crate) fn checkpoint(&self, record: &ConversationRecord) -> Checkpoint {
        let private_state = if self.is_outermost() {
            self.private_state().snapshot()
        } else {
            serde_json::Map::new()
        };
        Checkpoint::of(record, self.interrupts(), private_state)
    }

    /// Returns the context of an agent that takes over from this one.
    pub(crate) fn replacing(mut self, caller: &Self) -> Self {
        if let Some(scope) = Arc::get_mut(&mut self.scope) {
            let above = &caller.scope.place;
            scope.place = RecordPlace {
                path: above.below(scope.name()),
                ..above.clone()
            };
        }
        self
    }

    /// Returns the conversation of this agent, which has this request and may have started before.
    pub(crate) fn begin(&self, request: &Messages) -> OrderedMessages {
        let RecordPlace {
            record,
            path,
            joined,
        } = &self.scope.place;
        record.begin(path, request, *joined)
    }

    /// The record of this agent's loop, for that to write.
    pub(crate) fn write(&self, request: &Messages) -> Transcript {
        let RecordPlace {
            record,
            path,
            joined,
        } = &self.scope.place;
        Transcript::new(record, path, request, *joined)
    }

    /// Records that the loop of this agent has responded to this request.
    pub(crate) fn responded(&self, request: &Messages) {
        self.record()
            .responded(self.scope.place.path.clone(), request.clone());
    }

    /// Returns which agent continues, as seen from this one.
    pub(crate) fn turn(&self) -> WhoseTurn {
        let RecordPlace { record, path, .. } = &self.scope.place;
        let Some(turn) = record.turn_of() else {
            return WhoseTurn::Unknown;
        };
        match turn.strip_prefix(&**path) {
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
            self.record().give_turn(self.scope.place.path.clone(), from);
        }
    }

    /// Makes another agent continue this one's conversation, from this message on.
    pub(crate) fn give_turn(&self, agent: &str, from: usize) {
        self.record().give_turn(self.scope.place.below(agent), from);
    }

    /// Returns the round that this team is in.
    pub(crate) fn round(&self) -> u32 {
        self.record().round(&self.scope.place.path)
    }

    /// Records the round that this team is in.
    pub(crate) fn begin_round(&self, round: u32) {
        self.record()
            .begin_round(self.scope.place.path.clone(), round);
    }

    /// Returns how far this agent had come, if the run goes on with one that has paused in it.
    pub(crate) fn paused(&self) -> Option<Paused> {
        let paused = self.record().paused()?;
        matches!(self.turn(), WhoseTurn::Own).then_some(paused)
    }

    /// Returns whether this run goes on with an earlier one, which has paused: it was
    /// [resumed](crate::AgentRequest::resume) while interrupts were open, without another message of
    /// the user. What counts in a run counts over a pause.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::callback::{before_agent, before_tool};
    /// use tower_agent::testing::{ScriptedModel, Turn};
    /// use tower_agent::{Agent, AgentRequest, Error, Interrupt, Request, Resolution, Tool};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let model = ScriptedModel::new([Turn::tool("wipe", json!({})), Turn::from_text("Wiped.")]);
    /// let agent = Agent::builder(model)
    ///     .tool(Tool::function("wipe", "Wipes.", |_: serde_json::Value| "done"))
    ///     .on_agent(before_agent(|request| {
    ///         println!("goes on: {}", request.context().is_continuation());
    ///     }))
    ///     .on_tool(before_tool(|request| match request.context().resolution("1") {
    ///         Some(_) => Ok(()),
    ///         None => Err(Error::interrupt(Interrupt::new("1", "confirm"))),
    ///     }))
    ///     .build()?;
    ///
    /// let paused = agent.run("Wipe the disk.").await?;
    /// let yes = Resolution::resolved("1", true);
    /// agent.run(AgentRequest::resume(paused.checkpoint()).with_resolutions([yes])).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_continuation(&self) -> bool {
        self.scope.outermost().place.record.is_continuation()
    }

    /// Returns where the conversation of an agent is held that works in this tool call, or in
    /// parallel with others in this team.
    pub(crate) fn holds(&self, agent: &str) -> String {
        match &self.tool_call {
            // A call of this agent's own, and not the one that the agent was called in.
            Some(call) if !self.scope.is_in(call) => format!("{}/{agent}", call.name()),
            _ => self.scope.place.below(agent).to_string(),
        }
    }

    /// Returns the conversation of an agent that works in this tool call with this request. With a
    /// different request it starts over.
    pub(crate) fn working(&self, agent: &str, first: &Message) -> ConversationRecord {
        let at = self.holds(agent);
        let held = self.record().held(&at);
        held.filter(|held| held.request().get(0).is_none_or(|earlier| earlier == first))
            .unwrap_or_else(|| {
                let record = ConversationRecord::default();
                self.record().hold(at, record.clone());
                record
            })
    }

    /// Returns whether this agent has opened its record.
    pub(crate) fn has_opened(&self) -> bool {
        self.scope.place.joined.is_none()
    }
}
