use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;

/// A future that is either ready or boxed, which avoids a box for synchronous results.
pub enum MaybeFuture<'a, T> {
    /// The result; `None` once taken.
    Ready(Option<T>),
    /// A pending future.
    Boxed(BoxFuture<'a, T>),
}

impl<T> MaybeFuture<'_, T> {
    /// Creates a ready future.
    pub(crate) const fn ready(answer: T) -> Self {
        Self::Ready(Some(answer))
    }
}

impl<T> Unpin for MaybeFuture<'_, T> {}

impl<T> Future for MaybeFuture<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match &mut *self {
            // Polled after completion, which callers must not do: stays pending.
            Self::Ready(answer) => answer.take().map_or(Poll::Pending, Poll::Ready),
            Self::Boxed(future) => future.as_mut().poll(cx),
        }
    }
}

impl<T> fmt::Debug for MaybeFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaybeFuture").finish_non_exhaustive()
    }
}
