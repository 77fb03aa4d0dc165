//! Runs one hook of one callback.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::erased::Erased;
use crate::call::Request;
use crate::error::{Error, ErrorKind, Result};
use crate::maybe_future::{MaybeFuture, State};
use crate::panic::catch;

/// A hook that was called.
pub(super) enum Started<'a, T> {
    /// It decided at once.
    Decided(Result<T>),
    Waits(Hook<'a, T>),
}

/// Calls a hook; a panic, also one before the first await, is an error.
#[inline]
pub(super) fn start<'a, T>(hook: impl FnOnce() -> MaybeFuture<'a, Result<T>>) -> Started<'a, T> {
    match catch(hook) {
        Ok(MaybeFuture(State::Ready(Some(answer)))) => Started::Decided(answer),
        Ok(running) => Started::Waits(Hook(running)),
        Err(panic) => Started::Decided(Err(panicked(panic))),
    }
}

/// A running hook.
pub(super) struct Hook<'a, T>(MaybeFuture<'a, Result<T>>);

impl<T> Future for Hook<'_, T> {
    type Output = Result<T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        catch(|| Pin::new(&mut self.0).poll(cx))
            .unwrap_or_else(|panic| Poll::Ready(Err(panicked(panic))))
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
