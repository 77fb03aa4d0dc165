//! What a band does with a call.

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use tower::Service;

use super::ending::Begun;
use super::erased::Erased;
use super::{Action, Callbacks, Recovery};
use crate::call::Origin;
use crate::error::{BoxError, CallSite, Error, ErrorKind, Result};
use crate::maybe_future::MaybeFuture;
use crate::panic::catch;
use crate::request::Request;

/// How often the `on_error`s of a band may have one call made again.
const MAX_RETRIES: u32 = 3;

/// Runs one call inside a band. `inner` has been polled ready.
//
// Not an async fn, which would keep its arguments twice.
pub(super) fn run<R, S>(
    callbacks: Callbacks<R>,
    request: R,
    mut inner: S,
) -> impl Future<Output = Result<R::Response>>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send> + Send,
{
    let mut call = Begun::new(request, callbacks);
    async move {
        let mut result = match call.request.context().refusal(R::CALL) {
            Some(ended) => Err(ended),
            None => call.run(&mut inner).await,
        };
        // What a hook, or a service inside, made of an abort does not count.
        if let Some(abort) = call.request.context().aborted() {
            result = Err(abort.clone());
        }
        call.end(&result);
        result
    }
}

impl<R: Request> Begun<R> {
    async fn run<S>(&mut self, inner: &mut S) -> Result<R::Response>
    where
        S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send> + Send,
    {
        let mut response = match self.before().await? {
            Some(response) => response,
            None => self.call(inner).await?,
        };
        match self.request.context().ending(R::CALL) {
            Some(ending) if ending.kind() == ErrorKind::Aborted => return Err(ending),
            Some(_) => {}
            None => self.after(&mut response).await?,
        }
        Ok(response)
    }

    async fn before(&mut self) -> Result<Option<R::Response>> {
        for index in 0..self.callbacks.len() {
            self.enter(index);
            let Self { request, callbacks, .. } = self;
            let callback = callbacks.as_slice()[index].get();
            match hook(|| callback.before(request))
                .await
                .map_err(|e| self.raised(e, index, "before"))?
            {
                Action::Continue => {}
                Action::Proceed => break,
                Action::Respond(mut response) => {
                    R::mark(&mut response, Origin::Before);
                    return Ok(Some(*response));
                }
            }
        }
        Ok(None)
    }

    async fn call<S>(&mut self, inner: &mut S) -> Result<R::Response>
    where
        S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send> + Send,
    {
        let mut retries = 0;
        loop {
            let attempt = async {
                if retries > 0 {
                    poll_fn(|cx| inner.poll_ready(cx)).await?;
                }
                inner.call(self.request.clone()).await
            };
            let error = match attempt.await {
                Ok(response) => return Ok(response),
                Err(error) => self.failed(error.into())?,
            };
            match self.on_error(error, retries < MAX_RETRIES).await? {
                Recovered::Fallback(response) => return Ok(response),
                Recovered::Retry => retries += 1,
            }
            if let Some(ended) = self.request.context().refusal(R::CALL) {
                return Err(ended);
            }
        }
    }

    /// The error of a failed call; `Err` if it ends more than the call.
    fn failed(&self, error: BoxError) -> Result<Error> {
        let error = self.name_call(Error::from(error));
        let context = self.request.context();
        context.latch(R::CALL, &error);
        match context.ending(R::CALL) {
            Some(ending) => Err(ending),
            None => Ok(error),
        }
    }

    async fn on_error(
        &mut self,
        mut error: Error,
        may_retry: bool,
    ) -> Result<Recovered<R::Response>> {
        for index in 0..self.callbacks.len() {
            self.enter(index);
            let Self { request, callbacks, .. } = self;
            let callback = callbacks.as_slice()[index].get();
            match hook(|| callback.on_error(request, &error))
                .await
                .map_err(|e| self.raised(e, index, "on_error"))?
            {
                Recovery::Propagate => {}
                Recovery::Fail(other) => {
                    error = self.raised(other, index, "on_error");
                    if error.is_ending() {
                        break;
                    }
                }
                Recovery::Retry if may_retry => return Ok(Recovered::Retry),
                Recovery::Retry => {}
                Recovery::Fallback(mut response) => {
                    R::mark(&mut response, Origin::Fallback);
                    return Ok(Recovered::Fallback(response));
                }
            }
        }
        Err(error)
    }

    async fn after(&mut self, response: &mut R::Response) -> Result<()> {
        for index in 0..self.callbacks.len() {
            self.enter(index);
            let Self { request, callbacks, .. } = self;
            let callback = callbacks.as_slice()[index].get();
            match hook(|| callback.after(request, response)).await {
                Ok(Action::Continue) => {}
                Ok(Action::Proceed) => break,
                Ok(Action::Respond(mut other)) => {
                    R::mark(&mut other, Origin::After);
                    *response = *other;
                }
                Err(error) => {
                    let error = self.raised(error, index, "after");
                    match error.kind() {
                        // The run ends; this call has succeeded.
                        ErrorKind::Interrupted | ErrorKind::Ended => break,
                        _ => return Err(error),
                    }
                }
            }
        }
        Ok(())
    }

    /// An error of a hook, with the names of the call, the callback and the hook.
    fn raised(&self, error: Error, index: usize, hook: &'static str) -> Error {
        let callback = self.callbacks.as_slice()[index].get();
        let error = self.name_call(error.by(|| name(callback), hook));
        self.request.context().latch(R::CALL, &error);
        error
    }

    fn name_call(&self, error: Error) -> Error {
        error.in_call(|| CallSite::of(&self.request))
    }
}

enum Recovered<T> {
    Retry,
    Fallback(T),
}

/// Starts a hook; a panic, also one before the first await, is an error.
#[inline]
fn hook<'a, T>(start: impl FnOnce() -> MaybeFuture<'a, Result<T>>) -> Hook<'a, T> {
    Hook(catch(start).unwrap_or_else(|panic| MaybeFuture::ready(Err(panicked(panic)))))
}

/// A running hook.
struct Hook<'a, T>(MaybeFuture<'a, Result<T>>);

impl<T> Future for Hook<'_, T> {
    type Output = Result<T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        match &mut self.0 {
            // A hook that had its answer at once.
            answered @ MaybeFuture::Ready(_) => Pin::new(answered).poll(cx),
            MaybeFuture::Boxed(future) => catch(|| future.as_mut().poll(cx))
                .unwrap_or_else(|panic| Poll::Ready(Err(panicked(panic)))),
        }
    }
}

fn panicked(panic: String) -> Error {
    Error::new(ErrorKind::Callback, format!("panicked: {panic}"))
}

/// A callback's name, even if asking for it panics.
fn name<R: Request>(callback: &dyn Erased<R>) -> Cow<'static, str> {
    catch(|| callback.name()).unwrap_or(Cow::Borrowed("a callback"))
}
