use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};
use tower_agent::error::{BoxError, Error, ErrorKind};

/// The limits of the time that an [`HttpClient`](super::HttpClient) waits for a server. After one,
/// the error is [`ErrorKind::Timeout`], except for [`connect`](Self::connect).
///
/// ```
/// use std::time::Duration;
///
/// use tower_agent_providers::{HttpClient, TimeLimits};
///
/// # fn main() -> Result<(), tower_agent::BoxError> {
/// let mut limits = TimeLimits::default();
/// limits.head = Some(Duration::from_secs(30));
/// let client = HttpClient::builder().time_limits(limits).build()?;
/// # drop(client);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimeLimits {
    /// Until a connection is there, without TLS. After it the error is [`ErrorKind::Connection`],
    /// as the provider has done nothing. Defaults to 10 seconds.
    pub connect: Option<Duration>,
    /// From the call until the head of the response, which for a response that is not streamed is
    /// as long as the model takes. Defaults to 10 minutes.
    pub head: Option<Duration>,
    /// Between two pieces of the response's body. Defaults to 5 minutes.
    pub idle: Option<Duration>,
    /// From the call until the end of the response's body: a server can keep a connection alive for
    /// ever without an answer. Defaults to one hour.
    pub whole: Option<Duration>,
}

impl Default for TimeLimits {
    fn default() -> Self {
        Self {
            connect: Some(Duration::from_secs(10)),
            head: Some(Duration::from_secs(10 * 60)),
            idle: Some(Duration::from_secs(5 * 60)),
            whole: Some(Duration::from_secs(60 * 60)),
        }
    }
}

/// The time that a server may be silent, at most until the end of the time for the whole response.
pub(super) struct Silence {
    limit: Option<Duration>,
    what: &'static str,
    deadline: Option<Deadline>,
    /// Made at the first silence, and set again at each.
    until: Option<Pin<Box<Sleep>>>,
    is_silent: bool,
}

/// The time by which a response has to have ended.
#[derive(Clone, Copy, Debug)]
struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Silence {
    pub(super) fn new(limit: Option<Duration>, what: &'static str) -> Self {
        Self {
            limit,
            what,
            deadline: None,
            until: None,
            is_silent: false,
        }
    }

    /// Limits the time of the whole response, from now on.
    pub(super) fn with_deadline(mut self, limit: Option<Duration>) -> Self {
        self.deadline = limit.and_then(|limit| {
            // A limit beyond the clock's range is none.
            let at = Instant::now().checked_add(limit)?;
            Some(Deadline { at, limit })
        });
        self
    }

    /// Returns the silence of the next part of the same response.
    pub(super) fn next(&self, limit: Option<Duration>, what: &'static str) -> Self {
        Self {
            deadline: self.deadline,
            ..Self::new(limit, what)
        }
    }

    /// Waits for the limit from the first poll of a silence on, and returns the error of a server
    /// that says nothing.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<BoxError> {
        let Some(limit) = self.remaining() else {
            return Poll::Pending;
        };
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(limit)));
        if !std::mem::replace(&mut self.is_silent, true) {
            // Not `reset`, which panics for limits beyond the clock's range.
            until.set(sleep(limit));
        }
        ready!(until.as_mut().poll(cx));
        let message = match self.deadline {
            Some(deadline) if deadline.at <= Instant::now() => {
                format!("the response did not end within {:?}", deadline.limit)
            }
            _ => format!("{} within {:?}", self.what, self.limit.unwrap_or_default()),
        };
        Poll::Ready(Error::new(ErrorKind::Timeout, message).into())
    }

    /// Returns how long a silence may be that begins now.
    fn remaining(&self) -> Option<Duration> {
        let whole = self
            .deadline
            .map(|deadline| deadline.at.saturating_duration_since(Instant::now()));
        match (self.limit, whole) {
            (Some(limit), Some(whole)) => Some(limit.min(whole)),
            (limit, whole) => limit.or(whole),
        }
    }

    /// Ends a silence. The next one begins with the next poll.
    pub(super) fn end(&mut self) {
        self.is_silent = false;
    }
}

impl fmt::Debug for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Silence")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
