//! Constructors of callbacks for calls of other types.

use std::future::Future;

use super::function::{
    After, AfterAsync, Before, BeforeAsync, BorrowingAfter, BorrowingBefore, BorrowingOnError,
    IntoAction, IntoHook, IntoRecovery, IntoRecoveryHook, OnError, OnErrorAsync,
};
use super::wrap::{Next, Wrap};
use crate::call::Request;
use crate::error::{Error, Result};

/// Creates a [`before_model`](super::before_model) for a call of your own, whose type the closure
/// names.
///
/// ```
/// use tower_agent::{Request, RunContext};
/// use tower_agent::call::CallKind;
/// use tower_agent::callback;
///
/// #[derive(Clone, Default)]
/// struct Embed {
///     text: String,
///     context: RunContext,
/// }
///
/// impl Request for Embed {
///     type Response = Vec<f32>;
///     const CALL: CallKind = CallKind::Other("embed");
///
///     fn context(&self) -> &RunContext {
///         &self.context
///     }
/// }
///
/// let lowercase = callback::before(|request: &mut Embed| {
///     request.text = request.text.to_lowercase();
/// });
/// # drop(lowercase);
/// ```
#[track_caller]
pub fn before<R, F, O, M>(function: F) -> Before<R, F, O, M>
where
    R: Request,
    F: Fn(&mut R) -> O + Send + Sync + 'static, // an `async fn` goes to `*_async`
    O: IntoHook<R::Response, M>,
{
    Before::new(function, "before")
}

/// Creates a [`before_model_async`](super::before_model_async) for a call of your own.
#[track_caller]
pub fn before_async<R, F>(function: F) -> BeforeAsync<R, F>
where
    R: Request,
    F: for<'a> BorrowingBefore<'a, R, Output: IntoAction<R::Response>> + 'static,
{
    BeforeAsync::new(function, "before")
}

/// Creates an [`after_model`](super::after_model) for a call of your own, whose type the closure
/// names.
#[track_caller]
pub fn after<R, F, O, M>(function: F) -> After<R, F, O, M>
where
    R: Request,
    F: Fn(&R, &R::Response) -> O + Send + Sync + 'static, // an `async fn` goes to `*_async`
    O: IntoHook<R::Response, M>,
{
    After::new(function, "after")
}

/// Creates an [`after_model_async`](super::after_model_async) for a call of your own.
#[track_caller]
pub fn after_async<R, F>(function: F) -> AfterAsync<R, F>
where
    R: Request,
    F: for<'a> BorrowingAfter<'a, R, R::Response, Output: IntoAction<R::Response>> + 'static,
{
    AfterAsync::new(function, "after")
}

/// Creates an [`on_model_error`](super::on_model_error) for a call of your own, whose type the
/// closure names.
#[track_caller]
pub fn on_error<R, F, O, M>(function: F) -> OnError<R, F, O, M>
where
    R: Request,
    F: Fn(&mut R, &Error) -> O + Send + Sync + 'static, // an `async fn` goes to `*_async`
    O: IntoRecoveryHook<R::Response, M>,
{
    OnError::new(function, "on_error")
}

/// Creates an [`on_model_error_async`](super::on_model_error_async) for a call of your own.
#[track_caller]
pub fn on_error_async<R, F>(function: F) -> OnErrorAsync<R, F>
where
    R: Request,
    F: for<'a> BorrowingOnError<'a, R, Output: IntoRecovery<R::Response>> + 'static,
{
    OnErrorAsync::new(function, "on_error")
}

/// Creates a [`wrap_model`](super::wrap_model) for a call of your own, whose type the closure
/// names.
#[track_caller]
pub fn wrap<R, F, O>(function: F) -> Wrap<R>
where
    R: Request,
    F: Fn(R, Next<R>) -> O + Send + Sync + 'static,
    O: Future<Output = Result<R::Response>> + Send + 'static,
{
    Wrap::new(function, "wrap")
}
