//! Converts panics of user code to values.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

/// Calls `f`; a panic is returned as its message.
///
/// Unwind safety is asserted: after a panic, what `f` borrows is only dropped or read.
#[inline]
pub(crate) fn catch<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(caught)
}

/// Apart and cold, so that the path without a panic stays small.
#[cold]
fn caught(payload: Box<dyn Any + Send>) -> String {
    panic_message(&*payload)
}

pin_project! {
    /// Polls a future; a panic is returned as its message.
    #[derive(Debug)]
    pub(crate) struct CatchPanic<F> {
        #[pin]
        future: F,
    }
}

impl<F> CatchPanic<F> {
    pub(crate) fn new(future: F) -> Self {
        Self { future }
    }
}

impl<F: Future> Future for CatchPanic<F> {
    type Output = Result<F::Output, String>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.project().future;
        match catch(|| future.poll(cx)) {
            Ok(poll) => poll.map(Ok),
            Err(message) => Poll::Ready(Err(message)),
        }
    }
}

/// Returns the message of a panic that was caught, for an error or a log.
///
/// ```
/// use std::panic::catch_unwind;
/// use tower_agent::error::panic_message;
///
/// let payload = catch_unwind(|| panic!("no {}", "luck")).unwrap_err();
/// assert_eq!(panic_message(&*payload), "no luck");
/// ```
#[must_use]
pub fn panic_message(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "non-string panic payload".to_owned()
    }
}
