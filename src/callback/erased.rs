//! Callbacks without their types.

use std::borrow::Cow;
use std::sync::Arc;

use super::action::{Action, Outcome, Recovery};
use super::hook_set::HookSet;
use crate::call::Request;
use crate::error::{Error, Result};
use crate::maybe_future::MaybeFuture;

/// The decision of a `before` or an `after` from an erased hook. It is usually `Continue`, so a
/// response, which is large, is boxed.
pub(super) type ActionFuture<'a, T> = MaybeFuture<'a, Result<Action<Box<T>>>>;

/// [`Callback`](super::Callback) without its generics, so that callbacks of different types share a
/// list.
pub(super) trait Erased<R: Request>: Send + Sync {
    fn before<'a>(&'a self, request: &'a mut R) -> ActionFuture<'a, R::Response> {
        let _ = request;
        MaybeFuture::ready(Ok(Action::Continue))
    }

    fn after<'a>(
        &'a self,
        request: &'a R,
        response: &'a R::Response,
    ) -> ActionFuture<'a, R::Response> {
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

    /// Returns the hooks that do something. The others are never called.
    fn hooks(&self) -> HookSet;

    fn name(&self) -> Cow<'static, str>;

    fn is_guard(&self) -> bool {
        false
    }

    fn named_tools(&self) -> Vec<Arc<str>> {
        Vec::new()
    }

    fn named_agents(&self) -> Vec<Arc<str>> {
        Vec::new()
    }
}
