use std::borrow::Cow;

use crate::agent::agent::Agent;
use crate::call::Request;
use crate::chance;
use crate::context::RunContext;
use crate::error::{Error, ErrorKind, Result};
use crate::message::{IdPart, Message, Messages};
use crate::panic::catch;
use crate::run::{AgentRequest, AgentResponse};

/// The members of a team, and how they are called.
pub(super) struct TeamConfig {
    pub(super) plan: Plan,
    /// For a [`Plan::ForEach`], the one that every task is for.
    pub(super) members: Vec<Agent>,
    pub(super) until: Option<Until>,
    /// The number of members that run at the same time, if it was set.
    pub(super) concurrency: Option<usize>,
    /// A member that fails is left out.
    pub(super) allows_failures: bool,
}

/// The order in which the members are called.
pub(super) enum Plan {
    /// In turn, for this many rounds.
    InTurn { rounds: u32 },
    /// In parallel.
    SideBySide,
    /// In parallel, once for each task.
    ForEach(MakeTasks),
}

pub(super) type Until = Box<dyn Fn(&AgentResponse) -> bool + Send + Sync>;

pub(super) type MakeTasks = Box<dyn Fn(&AgentRequest) -> Result<Vec<Message>> + Send + Sync>;

impl TeamConfig {
    /// Returns how many members run at the same time.
    pub(super) fn most_at_once(&self) -> usize {
        self.concurrency.unwrap_or(match self.plan {
            Plan::InTurn { .. } | Plan::SideBySide => usize::MAX,
            Plan::ForEach(_) => 8,
        })
    }

    /// Returns whether a member that has finished ends the team.
    pub(super) fn is_over(&self, member: &RunContext, response: &AgentResponse) -> Result<bool> {
        if member.scope().node.escalated() {
            return Ok(true);
        }
        let Some(until) = &self.until else {
            return Ok(false);
        };
        // The caller's own code: its panic fails the team instead of unwinding through it.
        catch(|| until(response))
            .map_err(|panic| Error::new(ErrorKind::Callback, format!("`until` panicked: {panic}")))
    }

    /// Returns whether the others go on after this error of a member.
    pub(super) fn is_allowed(&self, context: &RunContext, error: &Error) -> bool {
        let ends_run = error.is_ending() || context.cancellation().is_cancelled();
        self.allows_failures && !ends_run
    }

    /// Returns the conversations of the parallel members before they run.
    pub(super) fn conversations(
        &self,
        request: &AgentRequest,
        messages: &Messages,
    ) -> Result<Vec<Messages>> {
        let Plan::ForEach(make_tasks) = &self.plan else {
            return Ok(vec![messages.clone(); self.members.len()]);
        };
        let made = catch(|| make_tasks(request)).map_err(|panic| {
            let message = format!("the function for the tasks panicked: {panic}");
            Error::new(ErrorKind::Callback, message)
        })?;
        let mut conversations = Vec::new();
        let made_of = messages.last().and_then(Message::id);
        // Another team can make tasks of the same message.
        let team = chance::number(&[&request.context().step_path()]);
        for (number, mut task) in made?.into_iter().enumerate() {
            let mut conversation = messages.clone();
            // Its id says that it is a task: whoever reads it later must not take it for the user's
            // own.
            let id = task.id().or(made_of);
            if let Some(id) = id.map(|id| id.part(IdPart::Task { team, number })) {
                task.set_id(id);
            }
            conversation.push(task);
            // By the team, whose conversation they join: each has an id of its own there.
            request.context().place().record.identify(&mut conversation);
            conversations.push(conversation);
        }
        Ok(conversations)
    }

    /// Returns the parallel member with this index.
    pub(super) fn member(&self, index: usize) -> &Agent {
        match self.plan {
            Plan::ForEach(_) => &self.members[0],
            Plan::InTurn { .. } | Plan::SideBySide => &self.members[index],
        }
    }

    /// Returns the name of that member in this team.
    pub(super) fn name(&self, index: usize) -> Cow<'_, str> {
        let name = self.member(index).name();
        match self.plan {
            Plan::ForEach(_) => format!("{name}.{index}").into(),
            Plan::InTurn { .. } | Plan::SideBySide => name.into(),
        }
    }

    /// Returns the indices of the parallel members that may have begun in this run or an earlier
    /// one.
    pub(super) fn indices(&self, context: &RunContext) -> Vec<usize> {
        match self.plan {
            // The tasks of an earlier run: another conversation might give others.
            Plan::ForEach(_) => {
                let place = context.place();
                place
                    .record
                    .held_numbers(&place.below(self.members[0].name()))
            }
            Plan::InTurn { .. } | Plan::SideBySide => (0..self.members.len()).collect(),
        }
    }
}
