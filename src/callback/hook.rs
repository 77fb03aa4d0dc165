//! Runs one hook of one callback.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;

use super::erased::Erased;
use crate::call::Request;
use crate::error::{Error, ErrorKind, Result};
use crate::maybe_future::{MaybeFuture, State};
use crate::panic::catch;

/// Calls a hook and returns its decision; a panic, also one before the first await, is an error.
pub(super) struct Hook<'a, T, F> {
    call: Option<F>,
    running: Option<BoxFuture<'a, Result<T>>>,
}

impl<'a, T, F: FnOnce() -> MaybeFuture<'a, Result<T>> + Unpin> Hook<'a, T, F> {
    #[inline]
    pub(super) fn new(call: F) -> Self {
        Self { call: Some(call), running: None }
    }

    /// Polls the hook. One that decides at once is never stored.
    #[inline]
    fn decide(&mut self, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let running = match self.call.take().map(|call| call().0) {
            Some(State::Ready(Some(decision))) => return Poll::Ready(decision),
            Some(State::Boxed(running)) => Some(running),
            Some(State::Ready(None)) | None => self.running.take(),
        };
        let Some(mut running) = running else { return Poll::Pending };
        let decision = running.as_mut().poll(cx);
        if decision.is_pending() {
            self.running = Some(running);
        }
        decision
    }
}

impl<'a, T, F: FnOnce() -> MaybeFuture<'a, Result<T>> + Unpin> Future for Hook<'a, T, F> {
    type Output = Result<T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        catch(|| self.decide(cx)).unwrap_or_else(|panic| Poll::Ready(Err(panicked(panic))))
    }
}

#[cold]
fn panicked(panic: String) -> Error {
    Error::new(ErrorKind::Callback, format!("panicked: {panic}"))
}

/// Returns a callback's name, even if asking for it panics.
pub(super) fn name<R: Request>(callback: &dyn Erased<R>) -> Cow<'static, str> {
    catch(|| callback.name()).unwrap_or(Cow::Borrowed("a callback"))
}
