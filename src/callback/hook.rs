//! Runs one hook of one callback.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::erased::Erased;
use crate::call::Request;
use crate::error::{Error, ErrorKind, Result};
use crate::maybe_future::MaybeFuture;
use crate::panic::catch;

/// Starts a hook; a panic, also before the first await, becomes an error.
#[inline]
pub(super) fn hook<'a, T>(start: impl FnOnce() -> MaybeFuture<'a, Result<T>>) -> Hook<'a, T> {
    Hook(catch(start).unwrap_or_else(|panic| MaybeFuture::ready(Err(panicked(panic)))))
}

/// A running hook.
pub(super) struct Hook<'a, T>(MaybeFuture<'a, Result<T>>);

impl<T> Future for Hook<'_, T> {
    type Output = Result<T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        match &mut self.0 {
            // The hook was ready at once.
            answered @ MaybeFuture::Ready(_) => Pin::new(answered).poll(cx),
            MaybeFuture::Boxed(future) => catch(|| future.as_mut().poll(cx))
                .unwrap_or_else(|panic| Poll::Ready(Err(panicked(panic)))),
        }
    }
}

fn panicked(panic: String) -> Error {
    Error::new(ErrorKind::Callback, format!("panicked: {panic}"))
}

/// Returns a callback's name, even if its `name` panics.
pub(super) fn name<R: Request>(callback: &dyn Erased<R>) -> Cow<'static, str> {
    catch(|| callback.name()).unwrap_or(Cow::Borrowed("a callback"))
}
