use std::fmt;
use std::time::Duration;

use tower_agent::error::{Error, ErrorKind};

/// The reason why a call is not made now: the source of the error of a
/// [`RateLimit`](super::RateLimit).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{resource}; the next call may be made in {retry_after:?}")]
#[non_exhaustive]
pub struct Exhausted {
    /// The limit that is used up.
    pub resource: LimitedResource,
    /// The time until the next call may be made, if no other call comes before it.
    pub retry_after: Duration,
    /// The limit is that of one [key](super::RateLimitLayer::by), and not everybody's. A circuit
    /// breaker around it does not take it for a failure.
    pub is_of_key: bool,
}

/// A limit that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitedResource {
    /// The number of calls.
    Requests,
    /// The number of tokens.
    Tokens,
    /// The provider has refused a call, and has said when to come again.
    Provider,
}

impl fmt::Display for LimitedResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requests => "the limit of requests is used up",
            Self::Tokens => "the limit of tokens is used up",
            Self::Provider => "the provider accepts no calls at the moment",
        })
    }
}

impl From<Exhausted> for Error {
    fn from(exhausted: Exhausted) -> Self {
        // Retryable: a retry outside may wait as long as it is told to.
        Self::new(ErrorKind::Overloaded, format!("not called: {exhausted}"))
            .with_retry_after(exhausted.retry_after)
            .with_source(exhausted)
    }
}
