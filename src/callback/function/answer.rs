//! Return types of functions.

use std::future::Future;

use crate::callback::action::{Action, Recovery};
use crate::callback::erased::ActionFuture;
use crate::error::Result;
use crate::function::{Later, Now, Seal};
use crate::maybe_future::MaybeFuture;

/// Decisions of a `before` or `after` function: nothing, an [`Action`], or a `Result` of either.
#[diagnostic::on_unimplemented(
    message = "a callback cannot return `{Self}`",
    label = "neither `()`, `Action<{T}>` nor a `Result` of one",
    note = "return nothing, an `Action<{T}>`, or a `Result<_, tower_agent::Error>` of either"
)]
pub trait IntoAction<T> {
    /// Converts the returned value to a decision.
    ///
    /// # Errors
    ///
    /// Returns the callback's error.
    fn into_action(self, _: Seal) -> Result<Action<T>>;
}

impl<T> IntoAction<T> for () {
    fn into_action(self, _: Seal) -> Result<Action<T>> {
        Ok(Action::Continue)
    }
}

impl<T> IntoAction<T> for Action<T> {
    fn into_action(self, _: Seal) -> Result<Action<T>> {
        Ok(self)
    }
}

impl<T, A: IntoAction<T>> IntoAction<T> for Result<A> {
    fn into_action(self, _: Seal) -> Result<Action<T>> {
        self?.into_action(Seal)
    }
}

/// Decisions of an `on_error` function: nothing, a [`Recovery`], or a `Result` of either.
#[diagnostic::on_unimplemented(
    message = "an error callback cannot return `{Self}`",
    label = "neither `()`, `Recovery<{T}>` nor a `Result` of one",
    note = "return nothing, a `Recovery<{T}>`, or a `Result<_, tower_agent::Error>` of either"
)]
pub trait IntoRecovery<T> {
    /// Converts the returned value to a decision.
    ///
    /// # Errors
    ///
    /// Returns the callback's error.
    fn into_recovery(self, _: Seal) -> Result<Recovery<T>>;
}

impl<T> IntoRecovery<T> for () {
    fn into_recovery(self, _: Seal) -> Result<Recovery<T>> {
        Ok(Recovery::Propagate)
    }
}

impl<T> IntoRecovery<T> for Recovery<T> {
    fn into_recovery(self, _: Seal) -> Result<Recovery<T>> {
        Ok(self)
    }
}

impl<T, A: IntoRecovery<T>> IntoRecovery<T> for Result<A> {
    fn into_recovery(self, _: Seal) -> Result<Recovery<T>> {
        self?.into_recovery(Seal)
    }
}

/// Return types of a `before` or `after` function: a decision, or a future of one that owns what it
/// uses. `M` distinguishes the two.
#[diagnostic::on_unimplemented(
    message = "a callback cannot return `{Self}`",
    label = "neither a decision nor a `Send + 'static` future of one",
    note = "return nothing, an `Action<{T}>`, a `Result` of either, or an `async move` block of one of these that borrows nothing",
    note = "for a function whose future borrows the request, use the constructor whose name ends in `_async`, such as `before_model_async`"
)]
pub trait IntoHook<T, M> {
    /// Converts the returned value to a future.
    fn into_hook<'a>(self, _: Seal) -> ActionFuture<'a, T>;
}

#[diagnostic::do_not_recommend]
impl<T, O: IntoAction<T>> IntoHook<T, Now> for O {
    fn into_hook<'a>(self, _: Seal) -> ActionFuture<'a, T> {
        MaybeFuture::ready(self.into_action(Seal).map(Action::boxed))
    }
}

#[diagnostic::do_not_recommend]
impl<T, F: Future<Output: IntoAction<T>> + Send + 'static> IntoHook<T, Later> for F {
    fn into_hook<'a>(self, _: Seal) -> ActionFuture<'a, T> {
        MaybeFuture::pending(async move { self.await.into_action(Seal).map(Action::boxed) })
    }
}

/// Return types of an `on_error` function: a decision, or a future of one that owns what it uses.
/// `M` distinguishes the two.
#[diagnostic::on_unimplemented(
    message = "an error callback cannot return `{Self}`",
    label = "neither a decision nor a `Send + 'static` future of one",
    note = "return nothing, a `Recovery<{T}>`, a `Result` of either, or an `async move` block of one of these that borrows nothing",
    note = "for a function whose future borrows the request, use the constructor whose name ends in `_async`, such as `on_model_error_async`"
)]
pub trait IntoRecoveryHook<T, M> {
    /// Converts the returned value to a future.
    fn into_recovery_hook<'a>(self, _: Seal) -> MaybeFuture<'a, Result<Recovery<T>>>;
}

#[diagnostic::do_not_recommend]
impl<T, O: IntoRecovery<T>> IntoRecoveryHook<T, Now> for O {
    fn into_recovery_hook<'a>(self, _: Seal) -> MaybeFuture<'a, Result<Recovery<T>>> {
        MaybeFuture::ready(self.into_recovery(Seal))
    }
}

#[diagnostic::do_not_recommend]
impl<T, F: Future<Output: IntoRecovery<T>> + Send + 'static> IntoRecoveryHook<T, Later> for F {
    fn into_recovery_hook<'a>(self, _: Seal) -> MaybeFuture<'a, Result<Recovery<T>>> {
        MaybeFuture::pending(async move { self.await.into_recovery(Seal) })
    }
}
