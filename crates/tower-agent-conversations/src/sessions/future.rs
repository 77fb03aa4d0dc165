use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower_agent::AgentResponse;
use tower_agent::error::Result;

/// The future of a [`SessionService`](super::SessionService). Dropping it cancels the run, whose
/// progress is stored.
#[must_use = "a run does nothing until it is awaited"]
pub struct ResponseFuture(pub(super) BoxFuture<'static, Result<AgentResponse>>);

impl Future for ResponseFuture {
    type Output = Result<AgentResponse>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
