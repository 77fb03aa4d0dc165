use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use super::Callback;
use super::action::{Action, Outcome, Recovery};
use super::erased::{Erased, Implemented};
use super::hook_set::HookSet;
use super::purpose::Purpose;
use crate::call::Request;
use crate::error::{Error, Result};
use crate::panic::catch;

/// A type-erased callback. Cloning is O(1).
pub struct ArcCallback<R: Request> {
    callback: Arc<dyn Erased<R>>,
    hooks: HookSet,
    is_guard: bool,
}

impl<R: Request> ArcCallback<R> {
    pub(crate) fn new<C: Callback<R>>(callback: C) -> Self {
        Self::erased(Implemented::<_, C>::new(callback))
    }

    /// For callbacks that know their hooks and need no box.
    pub(super) fn erased<C: Erased<R> + 'static>(callback: C) -> Self {
        // A callback that panics here counts as a guard.
        let is_guard = catch(|| callback.is_guard()).unwrap_or(true);
        Self { hooks: callback.hooks(), is_guard, callback: Arc::new(callback) }
    }

    pub(super) fn get(&self) -> &dyn Erased<R> {
        &*self.callback
    }

    /// Returns whether any of these hooks is implemented rather than left at its default.
    #[inline]
    pub(super) fn has(&self, hooks: HookSet) -> bool {
        self.hooks.has(hooks)
    }

    /// Returns whether it is a guard.
    #[inline]
    pub(super) fn guards(&self) -> bool {
        self.is_guard
    }
}

impl<R: Request> Clone for ArcCallback<R> {
    fn clone(&self) -> Self {
        Self { callback: self.callback.clone(), ..*self }
    }
}

impl<R: Request> fmt::Debug for ArcCallback<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ArcCallback").field(&self.callback.name()).finish()
    }
}

/// An erased callback is a callback.
#[deny(clippy::missing_trait_methods)]
impl<R: Request> Callback<R> for ArcCallback<R> {
    async fn before(&self, request: &mut R) -> Result<Action<R::Response>> {
        self.callback.before(request).await.map(Action::unboxed)
    }

    async fn after(&self, request: &R, response: &R::Response) -> Result<Action<R::Response>> {
        self.callback.after(request, response).await.map(Action::unboxed)
    }

    async fn on_error(&self, request: &mut R, error: &Error) -> Result<Recovery<R::Response>> {
        self.callback.on_error(request, error).await
    }

    fn on_end(&self, request: &R, outcome: Outcome<'_, R::Response>) {
        self.callback.on_end(request, outcome);
    }

    fn name(&self) -> Cow<'static, str> {
        self.callback.name()
    }

    fn is_guard(&self) -> bool {
        self.is_guard
    }

    fn named_tools(&self) -> Vec<Arc<str>> {
        self.callback.named_tools()
    }

    fn purpose(&self) -> Option<Purpose> {
        self.callback.purpose()
    }

    fn erase(self) -> Self {
        self
    }
}

/// One callback with state can be registered in several places.
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

    fn purpose(&self) -> Option<Purpose> {
        (**self).purpose()
    }

    fn erase(self) -> ArcCallback<R> {
        ArcCallback::erased(Implemented::<_, C>::new(self))
    }
}
