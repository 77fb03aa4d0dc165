//! Callbacks: one trait, one list and one layer for every call.
//!
//! ```text
//! Callbacks<R>: Layer<S>    where S: Service<R, Response = R::Response>
//! ```
//!
//! # When each hook runs
//!
//! | hook | runs | may |
//! |---|---|---|
//! | [`before`](Callback::before) | before the call, in registration order | change the request; respond instead of the service |
//! | [`after`](Callback::after) | after a success, in registration order | replace the response |
//! | [`on_error`](Callback::on_error) | after a failure, in registration order | change the error; retry; respond instead |
//! | [`on_end`](Callback::on_end) | once, when the call has ended in any way | observe |
//!
//! Neighbouring callbacks form one band, and within a band the first registered acts first in every
//! phase. A tower layer ends the band: everything registered after it is inside it. The crate's
//! [front page](crate#order) has a picture.
//!
//! # Endings
//!
//! An error of a hook fails the call. Outer bands may recover it; the `on_error` hooks of its own
//! band do not see it. [`Error::abort`], [`Error::interrupt`] and [`Error::end_invocation`] end
//! more than the call: they are recorded in the run's context, and nothing outside can undo them.
//! If an `after` returns an interrupt or an end of the invocation, the run ends, but the call keeps
//! its response and counts as successful; no further `after` of it runs. A panic in a hook becomes
//! an error of kind [`Callback`](crate::ErrorKind::Callback) that names the callback and the hook.
//!
//! # Closures
//!
//! Each hook of each call has a constructor, such as [`before_model`] or [`after_tool`]. The
//! function may be sync, or return a future that owns what it uses; it may return nothing, an
//! [`Action`], or a `Result` of one. For a function whose future borrows the request, use the
//! constructor that ends in `_async`, such as [`before_model_async`]. Each is also a layer. For a
//! call of your own use [`before`], [`after`], [`on_error`] and [`wrap`].
//!
//! Compiler errors that need explaining:
//!
//! | message | cause | write |
//! |---|---|---|
//! | `type annotations needed` at `Err(..)` | the closure always returns an error | `Err::<(), _>(..)` |
//! | `type annotations needed` at an `async` closure's parameter | it cannot be inferred there | `async \|request: &mut ModelRequest\| ..` |
//! | `lifetime may not live long enough` at `async move` | the future borrows the request | copy what it needs before the `async move`, or use the `_async` constructor |

mod action;
mod any_call;
mod arc_callback;
mod band;
mod bundle;
mod call_state;
mod constructors;
mod erased;
mod function;
mod hook;
pub(crate) mod hook_set;
mod layer_inner;
mod layers;
mod list;
mod members;
mod names;
mod noted;
pub(crate) mod options;
mod purpose;
mod service;
mod stack_builder;
mod tree;
mod wrap;

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;

pub use self::action::{Action, Outcome, Recovery};
pub use self::any_call::*;
pub use self::arc_callback::ArcCallback;
pub use self::bundle::Bundle;
pub(crate) use self::bundle::InBundle;
pub use self::constructors::*;
pub use self::function::{
    After, AfterAsync, Before, BeforeAsync, BorrowingAfter, BorrowingBefore, BorrowingOnError,
    IntoAction, IntoHook, IntoRecovery, IntoRecoveryHook, OnError, OnErrorAsync,
};
pub use self::layer_inner::LayerInner;
pub use self::list::Callbacks;
pub(crate) use self::names::names_of;
pub(crate) use self::noted::{NamedTool, Notes, Registered, noting};
pub use self::noted::{layer_has_purpose, layer_names_tools};
pub(crate) use self::options::{CallbackSemantics, Globals};
pub use self::purpose::Purpose;
pub use self::service::CallbackService;
pub use self::stack_builder::StackBuilder;
pub(crate) use self::tree::Tree;
pub use self::wrap::{Next, Wrap, WrapService};

/// Futures of the layers in this module.
pub mod future {
    pub use super::service::ResponseFuture;
    pub use super::wrap::WrapFuture;
    pub use crate::maybe_future::MaybeFuture;
}

use self::hook_set::{AFTER, BEFORE, NoHook, ON_ERROR};
use crate::call::Request;
use crate::error::{Error, Result};
use crate::type_name::short_type_name;

/// Intercepts calls of one kind, or of every kind.
///
/// Every method has a default that does nothing; implement those you need as plain `async fn`s. A
/// callback for several kinds of calls is generic: `impl<R: Request> Callback<R> for Logger`.
///
/// ```
/// use tower_agent::{Action, Callback, ModelRequest, ModelResponse, Result};
///
/// /// Keeps answers short.
/// struct LengthGuard {
///     max_chars: usize,
/// }
///
/// impl Callback<ModelRequest> for LengthGuard {
///     async fn after(
///         &self,
///         _: &ModelRequest,
///         response: &ModelResponse,
///     ) -> Result<Action<ModelResponse>> {
///         let text = response.message().text();
///         if text.chars().count() <= self.max_chars {
///             return Ok(Action::Continue);
///         }
///         let short: String = text.chars().take(self.max_chars).collect();
///         Ok(Action::Respond(response.clone().with_text(short)))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a callback for `{R}`",
    label = "not a `Callback<{R}>`",
    note = "a callback is a type that implements `Callback<{R}>`, or a closure in its constructor, such as `before_model(|request| ..)` or `after_tool(|request, response| ..)`",
    note = "pass a type that implements `Hooks` to `callbacks` or `global_callbacks`, for every call at once",
    note = "pass a tower layer to `model_layer`, `tool_layer` or `agent_layer`"
)]
pub trait Callback<R: Request>: Send + Sync + 'static {
    /// **When:** before the call, unless an earlier callback of the band has decided.
    ///
    /// **Sees:** the request as earlier callbacks left it, and may change it.
    ///
    /// **May return:** [`Continue`](Action::Continue) to run the next callback;
    /// [`SkipRest`](Action::SkipRest) to make the call and run only [guards](Self::is_guard);
    /// [`Respond`](Action::Respond) to respond without making the call.
    ///
    /// **On error:** the call fails and is not made.
    ///
    /// **On drop:** the hook's future is dropped; `on_end` follows.
    fn before(&self, request: &mut R) -> impl Future<Output = Result<Action<R::Response>>> + Send {
        let _ = request;
        NoHook::<Self, R, BEFORE>::new()
    }

    /// **When:** after the call has succeeded, also if a `before` or an `on_error` responded. Runs
    /// even if this callback's `before` was skipped.
    ///
    /// **Sees:** the request as it was sent and the complete response, streamed or not, as earlier
    /// callbacks left it.
    ///
    /// **May return:** [`Continue`](Action::Continue) to run the next callback;
    /// [`SkipRest`](Action::SkipRest) to run only [guards](Self::is_guard);
    /// [`Respond`](Action::Respond) to replace the response; the next callback sees the new one.
    ///
    /// **On error:** the call fails, and no further `after` runs.
    ///
    /// **On drop:** the hook's future is dropped; `on_end` follows.
    fn after(
        &self,
        request: &R,
        response: &R::Response,
    ) -> impl Future<Output = Result<Action<R::Response>>> + Send {
        let _ = (request, response);
        NoHook::<Self, R, AFTER>::new()
    }

    /// **When:** each time the call fails. Not for an abort, an interrupt or an end of the
    /// invocation, and not for an error of a hook of this band.
    ///
    /// **Sees:** the request as it was sent, which it may change for a retry, and the error as
    /// earlier callbacks left it.
    ///
    /// **May return:** [`Propagate`](Recovery::Propagate) to run the next callback;
    /// [`Fail`](Recovery::Fail) to replace the error; the next callback sees the new one;
    /// [`Retry`](Recovery::Retry) to retry the call, at most three times. `before` does not run
    /// again, except guards' if the request was changed; [`Fallback`](Recovery::Fallback) to
    /// respond, which `after` then sees.
    ///
    /// **On error:** the call fails with that error.
    ///
    /// **On drop:** the hook's future is dropped; `on_end` follows.
    fn on_error(
        &self,
        request: &mut R,
        error: &Error,
    ) -> impl Future<Output = Result<Recovery<R::Response>>> + Send {
        let _ = (request, error);
        NoHook::<Self, R, ON_ERROR>::new()
    }

    /// **When:** when the call has ended, exactly once for every call in which a hook of this
    /// callback has run: succeeded, failed or dropped.
    ///
    /// **Sees:** the request in its last form, and how the call ended.
    ///
    /// **May return:** nothing; it cannot change anything. It may run while a future is dropped, so
    /// it must not block. A panic in it is caught and ignored.
    fn on_end(&self, request: &R, outcome: Outcome<'_, R::Response>) {
        let _ = (request, outcome);
    }

    /// Returns the name used in errors, traces and [`explain`](crate::Agent::explain). Defaults to
    /// the type's name.
    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed(short_type_name::<Self>())
    }

    /// Returns whether the callback is a guard: its hooks run whatever other callbacks decide.
    /// Defaults to `false`.
    ///
    /// Return `true` from a callback that blocks calls or hides data. For a guard:
    /// - `before` runs before every call that is made, also after a [`SkipRest`](Action::SkipRest),
    ///   and again before a retry of a request that an `on_error` has changed. It is skipped only
    ///   if an earlier callback has responded: then no call is made.
    /// - `after` sees every response that leaves the band, whatever the
    ///   [semantics](CallbackSemantics) skip. It sees the response in effect, and later callbacks
    ///   see the guard's replacement.
    /// - `on_error` runs after every failure, also if an earlier callback has recovered it. A
    ///   [`Fail`](Recovery::Fail) then changes the error that callbacks see, not the recovery.
    /// - A response takes effect under every [`RespondScope`](crate::compat::RespondScope).
    ///
    /// A guard's `before` sees the request as the callbacks before it left it. What callbacks after it
    /// change, it does not see, and another band's changes for a retry do not ask it again. If others
    /// change requests, register it last in its band, or directly around the call with
    /// [`Bundle::innermost_model`] or [`Bundle::innermost_tool`].
    ///
    /// The hooks may run more than once for one call, so a guard must not count calls in `before`
    /// alone. The value is read when the callback is registered.
    fn is_guard(&self) -> bool {
        false
    }

    /// Returns the tools that the callback names, if it applies to some by name. Defaults to none.
    ///
    /// Building an agent fails if one of them does not exist, so that a misspelt name cannot
    /// disable a guard.
    fn named_tools(&self) -> Vec<Arc<str>> {
        Vec::new()
    }

    /// Returns the purpose, by which building an agent checks the order. Defaults to none.
    fn purpose(&self) -> Option<Purpose> {
        None
    }

    /// Erases the type of the callback.
    #[doc(hidden)]
    fn erase(self) -> ArcCallback<R>
    where
        Self: Sized,
    {
        ArcCallback::new(self)
    }
}
