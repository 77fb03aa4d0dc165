use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;

/// A future that is either ready or boxed, which avoids a box for synchronous results.
pub struct MaybeFuture<'a, T>(pub(crate) State<'a, T>);

/// Visible to the crate, so that a ready result can be taken without polling.
pub(crate) enum State<'a, T> {
    /// The result; `None` once taken.
    Ready(Option<T>),
    /// A pending future.
    Boxed(BoxFuture<'a, T>),
}

impl<'a, T> MaybeFuture<'a, T> {
    /// Creates a ready future.
    #[inline]
    pub(crate) const fn ready(answer: T) -> Self {
        Self(State::Ready(Some(answer)))
    }

    /// Boxes a future.
    #[inline]
    pub(crate) fn boxed(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self(State::Boxed(Box::pin(future)))
    }
}

impl<T> Unpin for MaybeFuture<'_, T> {}

impl<T> Future for MaybeFuture<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match &mut self.0 {
            // Polled after completion, which callers must not do: stays pending.
            State::Ready(answer) => answer.take().map_or(Poll::Pending, Poll::Ready),
            State::Boxed(future) => future.as_mut().poll(cx),
        }
    }
}

impl<T> fmt::Debug for MaybeFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaybeFuture").finish_non_exhaustive()
    }
}
