use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::TryFutureExt;

use super::{Action, Callback, Outcome, Recovery};
use crate::call::Request;
use crate::error::{Error, Result};
use crate::maybe_future::MaybeFuture;

/// A callback with its type erased. Cloning is O(1).
pub struct ArcCallback<R: Request>(Arc<dyn Erased<R>>);

impl<R: Request> ArcCallback<R> {
    pub(super) fn new<C: Callback<R>>(callback: C) -> Self {
        Self(Arc::new(Implemented(callback)))
    }

    /// For callbacks whose hooks need no box.
    pub(super) fn unboxed<C: Erased<R> + 'static>(callback: C) -> Self {
        Self(Arc::new(callback))
    }

    pub(super) fn get(&self) -> &dyn Erased<R> {
        &*self.0
    }
}

impl<R: Request> Clone for ArcCallback<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Request> fmt::Debug for ArcCallback<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ArcCallback").field(&self.0.name()).finish()
    }
}

/// An erased callback is a callback.
#[deny(clippy::missing_trait_methods)]
impl<R: Request> Callback<R> for ArcCallback<R> {
    async fn before(&self, request: &mut R) -> Result<Action<R::Response>> {
        self.0.before(request).await.map(Action::unboxed)
    }

    async fn after(&self, request: &R, response: &R::Response) -> Result<Action<R::Response>> {
        self.0.after(request, response).await.map(Action::unboxed)
    }

    async fn on_error(&self, request: &mut R, error: &Error) -> Result<Recovery<R::Response>> {
        self.0.on_error(request, error).await
    }

    fn on_end(&self, request: &R, outcome: Outcome<'_, R::Response>) {
        self.0.on_end(request, outcome);
    }

    fn name(&self) -> Cow<'static, str> {
        self.0.name()
    }

    fn is_guard(&self) -> bool {
        self.0.is_guard()
    }

    fn named_tools(&self) -> Vec<Arc<str>> {
        self.0.named_tools()
    }

    fn erase(self) -> Self {
        self
    }
}

/// One callback with state can stand in several places.
#[deny(clippy::missing_trait_methods)]
impl<R: Request, C: Callback<R>> Callback<R> for Arc<C> {
    fn before(&self, request: &mut R) -> impl Future<Output = Result<Action<R::Response>>> + Send {
        (**self).before(request)
    }

    fn after(
        &self,
        request: &R,
        response: &R::Response,
    ) -> impl Future<Output = Result<Action<R::Response>>> + Send {
        (**self).after(request, response)
    }

    fn on_error(
        &self,
        request: &mut R,
        error: &Error,
    ) -> impl Future<Output = Result<Recovery<R::Response>>> + Send {
        (**self).on_error(request, error)
    }

    fn on_end(&self, request: &R, outcome: Outcome<'_, R::Response>) {
        (**self).on_end(request, outcome);
    }

    fn name(&self) -> Cow<'static, str> {
        (**self).name()
    }

    fn is_guard(&self) -> bool {
        (**self).is_guard()
    }

    fn named_tools(&self) -> Vec<Arc<str>> {
        (**self).named_tools()
    }

    fn erase(self) -> ArcCallback<R> {
        ArcCallback::new(self)
    }
}

/// What a `before` or an `after` decides, as it comes out of an erased hook: nearly always
/// `Continue`, so a response, which is large, travels by pointer.
pub(super) type Decision<'a, T> = MaybeFuture<'a, Result<Action<Box<T>>>>;

/// [`Callback`] without its generics, so that callbacks of different types share a list.
pub(super) trait Erased<R: Request>: Send + Sync {
    fn before<'a>(&'a self, request: &'a mut R) -> Decision<'a, R::Response> {
        let _ = request;
        MaybeFuture::ready(Ok(Action::Continue))
    }

    fn after<'a>(&'a self, request: &'a R, response: &'a R::Response) -> Decision<'a, R::Response> {
        let _ = (request, response);
        MaybeFuture::ready(Ok(Action::Continue))
    }

    fn on_error<'a>(
        &'a self,
        request: &'a mut R,
        error: &'a Error,
    ) -> MaybeFuture<'a, Result<Recovery<R::Response>>> {
        let _ = (request, error);
        MaybeFuture::ready(Ok(Recovery::Propagate))
    }

    fn on_end(&self, request: &R, outcome: Outcome<'_, R::Response>) {
        let _ = (request, outcome);
    }

    fn name(&self) -> Cow<'static, str>;

    /// Whether it has this hook, rather than leaving it at its default.
    fn has(&self, hook: &str) -> bool;

    /// The callback's own type.
    fn type_name(&self) -> &'static str {
        std::any::type_name::<Self>()
    }

    fn is_guard(&self) -> bool {
        false
    }

    fn named_tools(&self) -> Vec<Arc<str>> {
        Vec::new()
    }
}

struct Implemented<C>(C);

impl<R: Request, C: Callback<R>> Erased<R> for Implemented<C> {
    fn before<'a>(&'a self, request: &'a mut R) -> Decision<'a, R::Response> {
        if captures_nothing(|(callback, request): (&'a C, &'a mut R)| callback.before(request))
            && let Some(answer) = now(self.0.before(&mut *request))
        {
            return MaybeFuture::ready(answer.map(Action::boxed));
        }
        MaybeFuture::BoxCallService(Box::pin(self.0.before(request).map_ok(Action::boxed)))
    }

    fn after<'a>(&'a self, request: &'a R, response: &'a R::Response) -> Decision<'a, R::Response> {
        let future = self.0.after(request, response);
        if size_of_val(&future) > 1 {
            return MaybeFuture::BoxCallService(Box::pin(future.map_ok(Action::boxed)));
        }
        match now(future) {
            Some(answer) => MaybeFuture::ready(answer.map(Action::boxed)),
            None => MaybeFuture::BoxCallService(Box::pin(
                self.0.after(request, response).map_ok(Action::boxed),
            )),
        }
    }

    fn on_error<'a>(
        &'a self,
        request: &'a mut R,
        error: &'a Error,
    ) -> MaybeFuture<'a, Result<Recovery<R::Response>>> {
        // Only ever on the way of a failure: a box costs nothing that matters.
        MaybeFuture::BoxCallService(Box::pin(self.0.on_error(request, error)))
    }

    fn on_end(&self, request: &R, outcome: Outcome<'_, R::Response>) {
        self.0.on_end(request, outcome);
    }

    fn name(&self) -> Cow<'static, str> {
        self.0.name()
    }

    fn has(&self, hook: &str) -> bool {
        has::<R, C>(hook)
    }

    fn type_name(&self) -> &'static str {
        std::any::type_name::<C>()
    }

    fn is_guard(&self) -> bool {
        self.0.is_guard()
    }

    fn named_tools(&self) -> Vec<Arc<str>> {
        self.0.named_tools()
    }
}

#[expect(clippy::extra_unused_lifetimes, reason = "the closures below name it")]
fn has<'a, R: Request, C: Callback<R>>(hook: &str) -> bool {
    !match hook {
        "before" => captures_nothing(|(it, request): (&'a C, &'a mut R)| it.before(request)),
        "after" => captures_nothing(|(it, request, response): (&'a C, &'a R, &'a R::Response)| {
            it.after(request, response)
        }),
        _ => captures_nothing(|(it, request, error): (&'a C, &'a mut R, &'a Error)| {
            it.on_error(request, error)
        }),
    }
}

/// Whether the future that `make` would return holds nothing: a hook left at its default, or one
/// that needs none of its arguments. Polling such a one on the stack saves a box, and dropping it
/// to start again loses nothing.
fn captures_nothing<A, F>(_make: impl FnOnce(A) -> F) -> bool {
    size_of::<F>() <= 1
}

/// The answer of a future that is ready at its first poll.
fn now<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}
