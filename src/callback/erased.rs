//! Callbacks without their types.

use std::any::TypeId;
use std::borrow::Cow;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::Callback;
use super::action::{Action, Outcome, Recovery};
use super::hook_set::{AFTER, BEFORE, HookSet, NoHook, ON_ERROR};
use super::purpose::Purpose;
use crate::call::Request;
use crate::error::{Error, Result};
use crate::maybe_future::MaybeFuture;

/// The decision of a `before` or an `after` from an erased hook. It is usually `Continue`, so a
/// response, which is large, is boxed.
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

    /// Which of them do something. The others are never called.
    fn hooks(&self) -> HookSet;

    fn name(&self) -> Cow<'static, str>;

    fn is_guard(&self) -> bool {
        false
    }

    fn named_tools(&self) -> Vec<Arc<str>> {
        Vec::new()
    }

    fn purpose(&self) -> Option<Purpose> {
        None
    }
}

/// A callback of type `C`, whose hooks are those of a `By`.
pub(super) struct Implemented<C, By> {
    callback: C,
    by: PhantomData<fn(&By)>,
}

impl<C, By> Implemented<C, By> {
    pub(super) fn new(callback: C) -> Self {
        Self { callback, by: PhantomData }
    }
}

impl<R, C, By> Erased<R> for Implemented<C, By>
where
    R: Request,
    C: Callback<R>,
    By: Callback<R>,
{
    fn before<'a>(&'a self, request: &'a mut R) -> Decision<'a, R::Response> {
        MaybeFuture::pending(ByPointer { hook: self.callback.before(request) })
    }

    fn after<'a>(&'a self, request: &'a R, response: &'a R::Response) -> Decision<'a, R::Response> {
        MaybeFuture::pending(ByPointer { hook: self.callback.after(request, response) })
    }

    fn on_error<'a>(
        &'a self,
        request: &'a mut R,
        error: &'a Error,
    ) -> MaybeFuture<'a, Result<Recovery<R::Response>>> {
        MaybeFuture::pending(self.callback.on_error(request, error))
    }

    fn on_end(&self, request: &R, outcome: Outcome<'_, R::Response>) {
        self.callback.on_end(request, outcome);
    }

    fn hooks(&self) -> HookSet {
        // Whether a plain function is the default, its type does not say: it is called.
        let mut hooks = HookSet::ON_END;
        let before = made(|(it, request): (&'static C, &'static mut R)| it.before(request));
        if before != TypeId::of::<NoHook<By, R, BEFORE>>() {
            hooks = hooks.and(HookSet::BEFORE);
        }
        let after =
            made(|(it, request, response): (&'static C, &'static R, &'static R::Response)| {
                it.after(request, response)
            });
        if after != TypeId::of::<NoHook<By, R, AFTER>>() {
            hooks = hooks.and(HookSet::AFTER);
        }
        let on_error =
            made(|(it, request, error): (&'static C, &'static mut R, &'static Error)| {
                it.on_error(request, error)
            });
        if on_error != TypeId::of::<NoHook<By, R, ON_ERROR>>() {
            hooks = hooks.and(HookSet::ON_ERROR);
        }
        hooks
    }

    fn name(&self) -> Cow<'static, str> {
        self.callback.name()
    }

    fn is_guard(&self) -> bool {
        self.callback.is_guard()
    }

    fn named_tools(&self) -> Vec<Arc<str>> {
        self.callback.named_tools()
    }

    fn purpose(&self) -> Option<Purpose> {
        self.callback.purpose()
    }
}

/// The type of what `make` would make; nothing is called.
fn made<A, F: 'static>(_make: impl FnOnce(A) -> F) -> TypeId {
    TypeId::of::<F>()
}

pin_project! {
    /// A hook whose response, if any, is boxed; other decisions are moved unchanged.
    struct ByPointer<F> {
        #[pin]
        hook: F,
    }
}

impl<T, F: Future<Output = Result<Action<T>>>> Future for ByPointer<F> {
    type Output = Result<Action<Box<T>>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(self.project().hook.poll(cx)) {
            Ok(action) => Ok(action.boxed()),
            Err(error) => Err(error),
        })
    }
}
