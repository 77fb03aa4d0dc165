use std::fmt;

use serde::{Deserialize, Serialize};
use tower_agent::{AgentRequest, RunContext};

/// The keeper of a run's conversation: a session, whose caller is your program, or a thread,
/// whose caller is a client.
///
/// It is an [extension](AgentRequest::with_extension) of each run that has its conversation, beside
/// the [key](crate::ConversationKey), so that a journal knows where the run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Policy {
    /// A [`SessionLayer`](crate::SessionLayer).
    Session,
    /// [`Threads`](crate::Threads).
    Thread,
}

impl Policy {
    /// Returns the policy that keeps the conversation of a run, if one does.
    #[must_use]
    pub fn of(context: &RunContext) -> Option<Self> {
        context.extensions().get().copied()
    }

    /// Returns the [kind](crate::Append::kind) of the conversations that it writes.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Thread => "thread",
        }
    }

    /// Returns the request as one of a run whose conversation this policy keeps.
    pub(crate) fn request(self, request: AgentRequest) -> AgentRequest {
        request.with_extension(self)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}
