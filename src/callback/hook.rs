//! Runs one hook of one callback.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::erased::Erased;
use crate::call::Request;
use crate::error::{Error, ErrorKind, Result};
use crate::maybe_future::{MaybeFuture, MaybeFutureState, Pending};
use crate::panic::catch;

pin_project! {
    /// Calls a hook and returns its decision; a panic, also one before the first await, is an
    /// error.
    pub(super) struct Hook<'a, T, F> {
        call: Option<F>,
        #[pin]
        running: Option<Pending<'a, Result<T>>>,
    }
}

impl<'a, T, F: FnOnce() -> MaybeFuture<'a, Result<T>>> Hook<'a, T, F> {
    #[inline]
    pub(super) fn new(call: F) -> Self {
        Self {
            call: Some(call),
            running: None,
        }
    }

    /// Polls the hook. One that decides at once is never stored.
    #[inline]
    fn decide(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let mut this = self.project();
        if let Some(call) = this.call.take() {
            match call().into_state() {
                // Most hooks decide at once: no future is kept for them.
                MaybeFutureState::Ready {
                    answer: Some(decision),
                } => return Poll::Ready(decision),
                MaybeFutureState::Ready { answer: None } => {}
                MaybeFutureState::Pending { future } => this.running.set(Some(future)),
            }
        }
        let Some(running) = this.running.as_mut().as_pin_mut() else {
            // Polled after the end. A panic here would count as one of the callback.
            return Poll::Pending;
        };
        let decision = ready!(running.poll(cx));
        // Dropped here, where a panic of its destructor is caught.
        this.running.set(None);
        Poll::Ready(decision)
    }

    #[cold]
    fn panicked(self: Pin<&mut Self>, panic: &str) -> Error {
        // The future's destructor is the callback's code as well, and may panic in turn.
        drop(catch(|| self.project().running.set(None)));
        Error::new(ErrorKind::Callback, format!("panicked: {panic}"))
    }
}

impl<'a, T, F: FnOnce() -> MaybeFuture<'a, Result<T>>> Future for Hook<'a, T, F> {
    type Output = Result<T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        match catch(|| self.as_mut().decide(cx)) {
            Ok(decision) => decision,
            Err(panic) => Poll::Ready(Err(self.panicked(&panic))),
        }
    }
}

/// Returns a callback's name, even if asking for it panics.
pub(super) fn name<R: Request>(callback: &dyn Erased<R>) -> Cow<'static, str> {
    catch(|| callback.name()).unwrap_or(Cow::Borrowed("a callback"))
}
