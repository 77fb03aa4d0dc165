//! Callbacks: one trait, one list, one layer, for every call.
//!
//! ```text
//! Callbacks<R>: Layer<S>    where S: Service<R, Response = R::Response>
//! ```
//!
//! # When each hook runs
//!
//! | hook | runs | may |
//! |---|---|---|
//! | [`before`](Callback::before) | before the call, first registered first | change the request; answer in the service's place |
//! | [`after`](Callback::after) | after a success, first registered first | replace the response |
//! | [`on_error`](Callback::on_error) | after a failure, first registered first | change the error; retry; answer in its place |
//! | [`on_end`](Callback::on_end) | once, when the call is over, however it ended | look |
//!
//! Callbacks registered next to one another form one band, and inside a band the first registered
//! acts first in every phase. A tower layer draws a line: what is registered after it is inside
//! it. The crate's [front page](crate#order) has the picture.
//!
//! # Endings
//!
//! An error from a hook fails the call; bands outside may recover it, its own band's `on_error`
//! does not see it. [`Error::abort`], [`Error::interrupt`] and [`Error::end_invocation`] end more
//! than the call, and are kept in the run's context, where nothing outside can undo them. Raised
//! in an `after`, an interrupt or an end of the invocation leaves the call its response: it is
//! the run that ends, and the call has succeeded; no further `after` of it is asked. A panic in a
//! hook is an error of kind [`Callback`](crate::ErrorKind::Callback) that names the callback and
//! the hook.
//!
//! # Closures
//!
//! Each hook has a constructor by its field's name, such as [`before_model`] or [`after_tool`].
//! The function may be sync, or return a future that owns what it uses, and may return nothing,
//! an [`Action`], or a `Result` of one. A function whose future borrows the request takes the
//! second name, such as [`before_model_async`]. Standing alone, each is a layer as well. For a call
//! of your own there are [`before`], [`after`], [`on_error`] and [`wrap`].
//!
//! Where the compiler cannot say what is wrong:
//!
//! | it says | because | write |
//! |---|---|---|
//! | `type annotations needed` at `Err(..)` | the closure only ever fails | `Err::<(), _>(..)` |
//! | `type annotations needed` at an `async` closure's parameter | it cannot be inferred there | `async \|request: &mut ModelRequest\| ..` |
//! | `lifetime may not live long enough` at `async move` | the future borrows the request | take what it needs before the `async move`, or use the second name |

mod action;
mod any_call;
mod arc_callback;
mod band;
mod bundle;
mod call_state;
mod carried;
mod constructors;
mod erased;
mod function;
mod hook;
pub(crate) mod hook_set;
mod list;
mod named;
pub(crate) mod options;
mod service;
mod stack_builder;
mod wrap;

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;

pub use self::action::{Action, Outcome, Recovery};
pub use self::any_call::*;
pub use self::arc_callback::ArcCallback;
pub use self::bundle::Bundle;
pub(crate) use self::carried::{Carried, InTree};
pub use self::constructors::*;
pub use self::function::{
    After, AfterAsync, Before, BeforeAsync, BorrowingAfter, BorrowingBefore, BorrowingOnError,
    IntoAction, IntoHook, IntoRecovery, IntoRecoveryHook, OnError, OnErrorAsync,
};
pub use self::list::Callbacks;
pub use self::named::layer_names_tools;
pub(crate) use self::named::{NamedTool, noting_names};
pub(crate) use self::options::{CallbackSemantics, Globals};
pub use self::service::CallbackService;
pub(crate) use self::stack_builder::made_of;
pub use self::stack_builder::{LayerInner, StackBuilder};
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

/// Stands around calls of one kind, or of every kind.
///
/// Every method has a default that does nothing; implement those you need as plain `async fn`s.
/// A callback for several kinds is generic: `impl<R: Request> Callback<R> for Logger`.
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
    note = "an object that implements `Hooks` goes to `bundle` or `global`, for every call at once",
    note = "a tower layer goes to `model_layer`, `tool_layer` or `agent_layer`"
)]
pub trait Callback<R: Request>: Send + Sync + 'static {
    /// **When:** before the call, unless a callback registered earlier in the band has decided.
    ///
    /// **Sees:** the request as earlier callbacks left it, and may change it.
    ///
    /// **May return:** [`Continue`](Action::Continue) to ask the next callback;
    /// [`SkipRest`](Action::SkipRest) to make the call and ask only [guards](Self::is_guard);
    /// [`Respond`](Action::Respond) to answer without making the call.
    ///
    /// **On error:** the call fails and is not made.
    ///
    /// **On drop:** the hook's future is dropped where it waits; `on_end` follows.
    fn before(&self, request: &mut R) -> impl Future<Output = Result<Action<R::Response>>> + Send {
        let _ = request;
        NoHook::<Self, R, BEFORE>::new()
    }

    /// **When:** after the call has succeeded, also when a `before` or an `on_error` answered it.
    /// A callback whose `before` was not asked is asked here all the same.
    ///
    /// **Sees:** the request as it was sent and the whole response, streamed or not, as earlier
    /// callbacks left it.
    ///
    /// **May return:** [`Continue`](Action::Continue) to ask the next callback;
    /// [`SkipRest`](Action::SkipRest) to ask only [guards](Self::is_guard); [`Respond`](Action::Respond) to put
    /// another response in its place, which the next callback sees.
    ///
    /// **On error:** the call fails, and no further `after` is asked.
    ///
    /// **On drop:** the hook's future is dropped where it waits; `on_end` follows.
    fn after(
        &self,
        request: &R,
        response: &R::Response,
    ) -> impl Future<Output = Result<Action<R::Response>>> + Send {
        let _ = (request, response);
        NoHook::<Self, R, AFTER>::new()
    }

    /// **When:** after the call has failed, each time it fails. Not for an abort, an interrupt or
    /// an end of the invocation, and not for an error of a hook of this band.
    ///
    /// **Sees:** the request as it was sent, which it may change for a retry, and the error as
    /// earlier callbacks left it.
    ///
    /// **May return:** [`Propagate`](Recovery::Propagate) to ask the next callback;
    /// [`Fail`](Recovery::Fail) to put another error in its place, which the next callback sees;
    /// [`Retry`](Recovery::Retry) to make the call again, three times at most, without asking
    /// `before` again, unless the request was changed: then guards are asked; [`Fallback`](Recovery::Fallback) to answer, which `after` then sees.
    ///
    /// **On error:** the call fails with that error.
    ///
    /// **On drop:** the hook's future is dropped where it waits; `on_end` follows.
    fn on_error(
        &self,
        request: &mut R,
        error: &Error,
    ) -> impl Future<Output = Result<Recovery<R::Response>>> + Send {
        let _ = (request, error);
        NoHook::<Self, R, ON_ERROR>::new()
    }

    /// **When:** when the call is over, exactly once for every call in which a hook of this
    /// callback has run: done, failed or dropped.
    ///
    /// **Sees:** the request as it last was, and how the call ended.
    ///
    /// **May return:** nothing; it cannot change anything. It may run while a future is dropped,
    /// so it must not block. A panic in it is caught and goes no further.
    fn on_end(&self, request: &R, outcome: Outcome<'_, R::Response>) {
        let _ = (request, outcome);
    }

    /// Names the callback in errors, traces and [`explain`](crate::Agent::explain). The type's
    /// name unless overridden.
    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed(short_type_name::<Self>())
    }

    /// Whether the callback is a guard: no other callback's decision keeps its hooks from being
    /// run. Defaults to `false`.
    ///
    /// Return `true` from a callback that refuses calls or hides data. For a guard
    /// - `before` runs before every call that is made, also after a
    ///   [`SkipRest`](Action::SkipRest), and again before a retry of a request that an `on_error`
    ///   has changed. Only where an earlier callback has answered the call it may not run: then
    ///   no call is made.
    /// - `after` sees every response that leaves the band, whatever the
    ///   [semantics](CallbackSemantics) skip. It sees the response that stands, and the callbacks
    ///   after it see what the guard put in its place.
    /// - `on_error` runs after every failure, also when an earlier callback has recovered it. A
    ///   [`Fail`](Recovery::Fail) then changes the error that callbacks see, not the recovery.
    /// - a response counts under every [`RespondScope`](crate::compat::RespondScope).
    ///
    /// The callback may be asked more than once about one call, so it must not count calls in
    /// `before` alone. Whether it is a guard is settled when it is registered.
    fn is_guard(&self) -> bool {
        false
    }

    /// Names the tools that the callback is for, where it is for some by name. Defaults to none.
    ///
    /// Building an agent fails where one of them does not exist, so that no guard stands around
    /// nothing because of a misspelt name.
    fn named_tools(&self) -> Vec<Arc<str>> {
        Vec::new()
    }

    /// The callback with its type erased.
    #[doc(hidden)]
    fn erase(self) -> ArcCallback<R>
    where
        Self: Sized,
    {
        ArcCallback::new(self)
    }
}
