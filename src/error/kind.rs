use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of an [`Error`](crate::Error), for programs to match on.
///
/// It serialises as its [`code`](Self::code); a code that is not known is read as
/// [`Other`](Self::Other).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// A callback, tool or model ended the whole run with [`Error::abort`](crate::Error::abort).
    Aborted,
    /// The run waits for input: [`Error::interrupt`](crate::Error::interrupt).
    Interrupted,
    /// A callback ended this agent with [`Error::end_invocation`](crate::Error::end_invocation).
    InvocationEnded,
    /// The run's token was cancelled, or the consumer of its stream disconnected.
    Cancelled,
    /// The call took longer than a layer allows. The provider may have done the work.
    Timeout,
    /// The provider received too many requests with this key.
    RateLimited,
    /// The provider, or a local limit, accepts no more calls at the moment.
    Overloaded,
    /// The provider rejected the credentials, or does not permit their owner the call.
    Auth,
    /// The provider does not know the model or the URL.
    NotFound,
    /// The request is invalid.
    InvalidRequest,
    /// The conversation is longer than the model's context window.
    ContextLength,
    /// A filter of the provider blocked the request, or the whole answer. An answer that was
    /// blocked in part is a response with the reason
    /// [`ContentFilter`](crate::model::FinishReason::ContentFilter).
    ContentFilter,
    /// The provider failed while processing the request.
    Provider,
    /// The provider could not be reached, or the connection broke.
    Connection,
    /// The provider's response violates its protocol.
    Protocol,
    /// A tool failed or panicked.
    Tool,
    /// The model called a tool that does not exist.
    UnknownTool,
    /// The arguments from the model do not match the tool's parameters.
    InvalidArguments,
    /// The final answer does not match the type that the caller asked for, or is [no
    /// answer](crate::message::NoAnswer).
    InvalidAnswer,
    /// The agent reached its limit of model calls.
    MaxIterations,
    /// Too many agents are nested: see [`max_nesting`](crate::AgentBuilder::max_nesting).
    MaxNesting,
    /// The budget of the run or of its account is exhausted.
    BudgetExceeded,
    /// A rule of the application forbids the call: the error of a callback or a layer that refuses
    /// it.
    Denied,
    /// Somebody else changed what this call was about to change, such as the session of a run.
    Conflict,
    /// An answer came after the [expiry](crate::Interrupt::with_expiry) of its interrupt.
    Expired,
    /// A store, such as that of sessions, failed or could not be reached.
    Store,
    /// A callback or a wrap failed or panicked.
    Callback,
    /// Anything else; [`downcast_ref`](crate::Error::downcast_ref) finds the original.
    #[default]
    #[serde(other)]
    Other,
}

impl ErrorKind {
    /// Returns whether a retry may succeed, judging by the kind alone.
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

    /// Returns the status code of HTTP with which a server may answer a request whose run has
    /// failed so, if it has no other reasons.
    ///
    /// What the caller has to change is 4xx, with 429 for limits and budgets. What happens between
    /// this server and a provider is not the caller's: rejected credentials and unknown models are
    /// 502, as is a provider that fails. A callback that ends the run, by whatever kind, is 500
    /// unless it says [`Denied`](Self::Denied).
    ///
    /// ```
    /// use tower_agent::ErrorKind;
    ///
    /// assert_eq!(ErrorKind::Denied.http_status(), 403);
    /// assert_eq!(ErrorKind::Auth.http_status(), 502);
    /// ```
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::InvalidRequest | Self::ContextLength | Self::ContentFilter => 400,
            Self::Denied => 403,
            Self::Conflict => 409,
            Self::Expired => 410,
            Self::RateLimited | Self::BudgetExceeded => 429,
            Self::Auth | Self::NotFound | Self::Provider | Self::Connection | Self::Protocol => 502,
            Self::Overloaded | Self::Store | Self::Cancelled => 503,
            Self::Timeout => 504,
            Self::Aborted
            | Self::Interrupted
            | Self::InvocationEnded
            | Self::Tool
            | Self::UnknownTool
            | Self::InvalidArguments
            | Self::InvalidAnswer
            | Self::MaxIterations
            | Self::MaxNesting
            | Self::Callback
            | Self::Other => 500,
        }
    }

    /// Returns a stable name for use by other programs, such as on the wire or in a metric.
    #[must_use]
    pub const fn code(self) -> &'static str {
        self.code_and_text().0
    }

    const fn code_and_text(self) -> (&'static str, &'static str) {
        match self {
            Self::Aborted => ("aborted", "aborted"),
            Self::Interrupted => ("interrupted", "interrupted"),
            Self::InvocationEnded => ("invocation_ended", "invocation ended"),
            Self::Cancelled => ("cancelled", "cancelled"),
            Self::Timeout => ("timeout", "timed out"),
            Self::RateLimited => ("rate_limited", "rate limited"),
            Self::Overloaded => ("overloaded", "overloaded"),
            Self::Auth => ("auth", "not authorised"),
            Self::NotFound => ("not_found", "not found"),
            Self::InvalidRequest => ("invalid_request", "invalid request"),
            Self::ContextLength => ("context_length", "context too long"),
            Self::ContentFilter => ("content_filter", "blocked by a content filter"),
            Self::Provider => ("provider", "provider failed"),
            Self::Connection => ("connection", "connection failed"),
            Self::Protocol => ("protocol", "protocol violation"),
            Self::Tool => ("tool", "tool failed"),
            Self::UnknownTool => ("unknown_tool", "unknown tool"),
            Self::InvalidArguments => ("invalid_arguments", "invalid arguments"),
            Self::InvalidAnswer => ("invalid_answer", "invalid answer"),
            Self::MaxIterations => ("max_iterations", "too many iterations"),
            Self::MaxNesting => ("max_nesting", "too many nested agents"),
            Self::BudgetExceeded => ("budget_exceeded", "budget exceeded"),
            Self::Denied => ("denied", "denied"),
            Self::Conflict => ("conflict", "conflict"),
            Self::Expired => ("expired", "expired"),
            Self::Store => ("store", "store failed"),
            Self::Callback => ("callback", "callback failed"),
            Self::Other => ("other", "failed"),
        }
    }

    /// Returns advice on what to do, where it is always the same.
    pub(crate) const fn advice(self) -> Option<&'static str> {
        Some(match self {
            Self::Auth => "check the API key",
            Self::NotFound => "check the model's name and the base URL",
            Self::ContextLength => {
                "shorten the history or choose a model with a larger context window"
            }
            Self::Connection => "check the base URL and the network",
            Self::MaxIterations => "raise `max_iterations`, or stop earlier with `stop_when`",
            Self::MaxNesting => "raise `max_nesting` on the outermost agent, or nest fewer agents",
            Self::BudgetExceeded => "raise the limit, or ask for less",
            _ => return None,
        })
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code_and_text().1)
    }
}
