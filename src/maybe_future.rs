use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use stackfuture::StackFuture;

/// The largest future that needs no box. A hook that awaits nothing fits.
const IN_PLACE: usize = 64;

pin_project! {
    /// A future that is either ready, stored in place if it is small, or boxed.
    pub struct MaybeFuture<'a, T> {
        #[pin]
        state: MaybeFutureState<'a, T>,
    }
}

pin_project! {
    /// The result or the future. Visible to the crate, so that a ready result is taken without a
    /// poll.
    #[project = Projected]
    pub(crate) enum MaybeFutureState<'a, T> {
        /// The result; `None` once taken.
        Ready { answer: Option<T> },
        Pending { #[pin] future: Pending<'a, T> },
    }
}

pub(crate) type Pending<'a, T> = StackFuture<'a, T, IN_PLACE>;

impl<'a, T> MaybeFuture<'a, T> {
    #[inline]
    pub(crate) const fn ready(answer: T) -> Self {
        Self {
            state: MaybeFutureState::Ready {
                answer: Some(answer),
            },
        }
    }

    /// Erases the type of a future.
    #[inline]
    pub(crate) fn pending(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self {
            state: MaybeFutureState::Pending {
                // In place where it fits: most hooks await nothing, and a box each would be the
                // largest cost of a callback.
                future: StackFuture::from_or_box(future),
            },
        }
    }

    #[inline]
    pub(crate) fn into_state(self) -> MaybeFutureState<'a, T> {
        self.state
    }
}

impl<T> Future for MaybeFuture<'_, T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match self.project().state.project() {
            // Polled after completion, which callers must not do: stays pending.
            Projected::Ready { answer } => answer.take().map_or(Poll::Pending, Poll::Ready),
            Projected::Pending { future } => future.poll(cx),
        }
    }
}

impl<T> fmt::Debug for MaybeFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaybeFuture").finish_non_exhaustive()
    }
}
