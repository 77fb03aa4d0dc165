use std::fmt;

/// What happened, as far as a program needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A callback, tool or model ended the whole run: [`Error::abort`](crate::Error::abort).
    Aborted,
    /// The run waits for somebody: [`Error::interrupt`](crate::Error::interrupt).
    Interrupted,
    /// A callback ended this agent: [`Error::end_invocation`](crate::Error::end_invocation).
    Ended,
    /// The run's token was cancelled, or whoever read its stream went away.
    Cancelled,
    /// The call took longer than a layer allows. The provider may have done the work.
    Timeout,
    /// The provider answers too many calls from this key.
    RateLimited,
    /// The provider, or a limit of ours, takes no more calls just now.
    Overloaded,
    /// The provider does not accept the key.
    Auth,
    /// The provider does not know the model or the address.
    NotFound,
    /// The provider refuses the request as it stands.
    InvalidRequest,
    /// The messages are longer than the model can read.
    ContextLength,
    /// The provider failed while it worked on the request.
    Provider,
    /// The provider was not reached: nothing was sent, or the connection broke.
    Connection,
    /// The provider's answer does not follow its protocol.
    Protocol,
    /// A tool failed, or panicked.
    Tool,
    /// The model asked for a tool that does not exist.
    UnknownTool,
    /// The model's arguments do not fit the tool.
    InvalidArguments,
    /// The agent made as many model calls as it may.
    MaxIterations,
    /// As many agents as may are at work inside one another:
    /// [`max_nesting`](crate::AgentBuilder::max_nesting).
    MaxNesting,
    /// What the run, or whoever pays for it, may spend is spent.
    BudgetExceeded,
    /// A callback or a wrap failed, or panicked.
    Callback,
    /// Anything else; [`downcast_ref`](crate::Error::downcast_ref) finds the original.
    Other,
}

impl ErrorKind {
    /// Whether a second attempt may succeed, as far as the kind alone tells.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::Timeout
                | Self::RateLimited
                | Self::Overloaded
                | Self::Provider
                | Self::Connection
                | Self::Protocol
        )
    }

    /// A word for it that never changes, for programs in other places: on a wire, in a metric.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Aborted => "aborted",
            Self::Interrupted => "interrupted",
            Self::Ended => "ended",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::Auth => "auth",
            Self::NotFound => "not_found",
            Self::InvalidRequest => "invalid_request",
            Self::ContextLength => "context_length",
            Self::Provider => "provider",
            Self::Connection => "connection",
            Self::Protocol => "protocol",
            Self::Tool => "tool",
            Self::UnknownTool => "unknown_tool",
            Self::InvalidArguments => "invalid_arguments",
            Self::MaxIterations => "max_iterations",
            Self::MaxNesting => "max_nesting",
            Self::BudgetExceeded => "budget_exceeded",
            Self::Callback => "callback",
            Self::Other => "other",
        }
    }

    /// What to do about it, where that is the same each time.
    pub(crate) const fn advice(self) -> Option<&'static str> {
        Some(match self {
            Self::Auth => "check the API key",
            Self::NotFound => "check the model's name and the base URL",
            Self::ContextLength => "shorten the history or choose a model that reads more",
            Self::Connection => "check the base URL and the network",
            Self::MaxIterations => "raise `max_iterations`, or stop earlier with `stop_when`",
            Self::MaxNesting => {
                "raise `max_nesting` on the outermost agent, or call fewer agents in turn"
            }
            Self::BudgetExceeded => "raise the limit, or ask for less",
            _ => return None,
        })
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aborted => "aborted",
            Self::Interrupted => "interrupted",
            Self::Ended => "ended",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timed out",
            Self::RateLimited => "rate limited",
            Self::Overloaded => "overloaded",
            Self::Auth => "not authorised",
            Self::NotFound => "not found",
            Self::InvalidRequest => "invalid request",
            Self::ContextLength => "context too long",
            Self::Provider => "provider failed",
            Self::Connection => "no connection",
            Self::Protocol => "protocol violated",
            Self::Tool => "tool failed",
            Self::UnknownTool => "unknown tool",
            Self::InvalidArguments => "invalid arguments",
            Self::MaxIterations => "too many iterations",
            Self::MaxNesting => "too many agents inside one another",
            Self::BudgetExceeded => "budget exceeded",
            Self::Callback => "callback failed",
            Self::Other => "failed",
        })
    }
}
