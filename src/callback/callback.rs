use std::any::TypeId;
use std::borrow::Cow;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::action::{Action, Outcome, Recovery};
use super::arc_callback::ArcCallback;
use super::erased::{ActionFuture, Erased};
use super::hook_set::{AFTER, BEFORE, HookSet, NoHook, ON_ERROR};
use crate::call::Request;
use crate::error::{Error, Result};
use crate::maybe_future::MaybeFuture;
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
        NoHook::<Self, R, _, BEFORE>::new()
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
        NoHook::<Self, R, _, AFTER>::new()
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
        NoHook::<Self, R, _, ON_ERROR>::new()
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
    /// - `after` runs for every response, whatever the [rules](super::Rules) skip. It sees the
    ///   response in effect, and later callbacks see the guard's replacement.
    /// - `on_error` runs after every failure, also if an earlier callback has recovered it. A
    ///   [`Fail`](Recovery::Fail) then changes the error that callbacks see, not the recovery.
    /// - A response takes effect whatever
    ///   [`before_responds`](super::CallbackRules::before_responds) says.
    ///
    /// A guard's `before` does not see what callbacks after it change, and another band's changes
    /// for a retry do not ask it again. If others change requests, register it last in its band, or
    /// directly around the call with [`Bundle::innermost_model`](super::Bundle::innermost_model) or
    /// [`Bundle::innermost_tool`](super::Bundle::innermost_tool).
    ///
    /// Nor does its `after` see what later callbacks and layers write into a response, or its
    /// `on_error` an error of a hook of its own band. A guard that must see what leaves the call,
    /// whoever wrote it, is registered with
    /// [`Bundle::outermost_model`](super::Bundle::outermost_model) or
    /// [`Bundle::outermost_tool`](super::Bundle::outermost_tool).
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

    /// Returns the tools that the callback takes to be agents of the run, or its transfer to one.
    /// Defaults to none.
    ///
    /// Building an agent fails if a tool with one of these names is another one, so that a guard
    /// does not take the word of a tool for that of an agent. A name that no tool has is no error.
    fn named_agents(&self) -> Vec<Arc<str>> {
        Vec::new()
    }

    /// Erases the type of the callback.
    #[doc(hidden)]
    fn erase(self) -> ArcCallback<R>
    where
        Self: Sized,
    {
        erase(self)
    }
}

/// Erases the type of a callback that has nothing to add to it.
pub(crate) fn erase<R: Request, C: Callback<R>>(callback: C) -> ArcCallback<R> {
    ArcCallback::erased(Implemented::<_, C>::new(callback))
}

// A new hook is forwarded in each of the three implementations below.
const _: () = {
    let [_before, _after, _on_error, _on_end] = HookSet::ALL;
};

/// An erased callback is a callback.
#[deny(clippy::missing_trait_methods)]
impl<R: Request> Callback<R> for ArcCallback<R> {
    async fn before(&self, request: &mut R) -> Result<Action<R::Response>> {
        self.get().before(request).await.map(Action::unboxed)
    }

    async fn after(&self, request: &R, response: &R::Response) -> Result<Action<R::Response>> {
        self.get()
            .after(request, response)
            .await
            .map(Action::unboxed)
    }

    async fn on_error(&self, request: &mut R, error: &Error) -> Result<Recovery<R::Response>> {
        self.get().on_error(request, error).await
    }

    fn on_end(&self, request: &R, outcome: Outcome<'_, R::Response>) {
        self.get().on_end(request, outcome);
    }

    fn name(&self) -> Cow<'static, str> {
        self.get().name()
    }

    fn is_guard(&self) -> bool {
        self.guards()
    }

    fn named_tools(&self) -> Vec<Arc<str>> {
        self.get().named_tools()
    }

    fn named_agents(&self) -> Vec<Arc<str>> {
        self.get().named_agents()
    }

    // Erased again, it would seem to have every hook: its own futures are of other types than
    // `NoHook`.
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

    fn named_agents(&self) -> Vec<Arc<str>> {
        (**self).named_agents()
    }

    fn erase(self) -> ArcCallback<R> {
        // Compared with the defaults of `C`, which are the futures that this implementation
        // returns.
        ArcCallback::erased(Implemented::<_, C>::new(self))
    }
}

/// A callback of type `C`, whose hooks are those of a `By`.
struct Implemented<C, By> {
    callback: C,
    by: PhantomData<fn(&By)>,
}

impl<C, By> Implemented<C, By> {
    fn new(callback: C) -> Self {
        Self {
            callback,
            by: PhantomData,
        }
    }
}

impl<R, C, By> Erased<R> for Implemented<C, By>
where
    R: Request,
    C: Callback<R>,
    By: Callback<R>,
{
    fn before<'a>(&'a self, request: &'a mut R) -> ActionFuture<'a, R::Response> {
        MaybeFuture::pending(ByPointer {
            hook: self.callback.before(request),
        })
    }

    fn after<'a>(
        &'a self,
        request: &'a R,
        response: &'a R::Response,
    ) -> ActionFuture<'a, R::Response> {
        MaybeFuture::pending(ByPointer {
            hook: self.callback.after(request, response),
        })
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
        // The type of a plain function does not say whether it is the default, so it is always
        // called.
        let mut hooks = HookSet::ON_END;
        let before =
            made(|(callback, request): (&'static C, &'static mut R)| callback.before(request));
        if before != TypeId::of::<NoHook<By, R, Action<R::Response>, BEFORE>>() {
            hooks = hooks.and(HookSet::BEFORE);
        }
        let after = made(
            |(callback, request, response): (&'static C, &'static R, &'static R::Response)| {
                callback.after(request, response)
            },
        );
        if after != TypeId::of::<NoHook<By, R, Action<R::Response>, AFTER>>() {
            hooks = hooks.and(HookSet::AFTER);
        }
        let on_error = made(
            |(callback, request, error): (&'static C, &'static mut R, &'static Error)| {
                callback.on_error(request, error)
            },
        );
        if on_error != TypeId::of::<NoHook<By, R, Recovery<R::Response>, ON_ERROR>>() {
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

    fn named_agents(&self) -> Vec<Arc<str>> {
        self.callback.named_agents()
    }
}

/// The type of what `make` would make; nothing is called.
//
// Futures borrow their arguments, and only a `'static` type has an id: hence the `'static`
// arguments.
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
