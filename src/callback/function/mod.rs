//! Closures as callbacks.

mod answer;
mod borrowing;

use std::borrow::Cow;
use std::convert::identity;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use tower_layer::Layer;

pub use self::answer::{IntoAction, IntoHook, IntoRecovery, IntoRecoveryHook};
pub use self::borrowing::Borrowing;

use super::action::{Action, Recovery};
use super::arc_callback::ArcCallback;
use super::callback::Callback;
use super::erased::{ActionFuture, Erased};
use super::hook_set::HookSet;
use super::list::Callbacks;
use super::service::CallbackService;
use crate::call::Request;
use crate::error::{Error, Result};
use crate::function::Seal;
use crate::maybe_future::MaybeFuture;

/// A function and its name.
struct Named<F> {
    function: Arc<F>,
    hook: &'static str,
    /// The place where it was created, used unless it has a name.
    location: &'static Location<'static>,
    name: Option<Cow<'static, str>>,
    is_guard: bool,
}

impl<F> Named<F> {
    fn name(&self) -> Cow<'static, str> {
        // Formatted when it is asked for: only errors, events and `explain` need it.
        self.name
            .clone()
            .unwrap_or_else(|| format!("{} at {}", self.hook, self.location).into())
    }
}

impl<F> Clone for Named<F> {
    fn clone(&self) -> Self {
        Self {
            function: self.function.clone(),
            name: self.name.clone(),
            ..*self
        }
    }
}

/// A closure type: a function for one hook. `$bounds` are the bounds of the function, `$method`
/// calls it, and the last line is the hook of [`Callback`]; the others do nothing.
macro_rules! function_callback {
    (
        $(#[$doc:meta])*
        $name:ident <$($param:ident),*> for $hook:ident
        where { $($bounds:tt)* }
        $method:item
        as $hook_name:ident($($arg:ident: $ty:ty),*) -> $decision:ident, $open:expr
    ) => {
        $(#[$doc])*
        #[must_use = "a callback does nothing until it is registered or layered"]
        pub struct $name<R, $($param),*> {
            named: Named<F>,
            // A function pointer, so that the callback is `Send` and `Sync` whatever these types
            // are.
            kind: PhantomData<fn(R, $($param),*)>,
        }

        impl<R, $($param),*> $name<R, $($param),*> {
            #[track_caller]
            pub(super) fn new(function: F, hook: &'static str) -> Self {
                let named = Named {
                    function: Arc::new(function),
                    hook,
                    location: Location::caller(),
                    name: None,
                    is_guard: false,
                };
                Self { named, kind: PhantomData }
            }

            /// Sets the name. Defaults to the hook and its place in the source.
            pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> Self {
                self.named.name = Some(name.into());
                self
            }

            /// Makes the callback [a guard](Callback::is_guard): it runs whatever other callbacks
            /// decide.
            pub fn guard(mut self) -> Self {
                self.named.is_guard = true;
                self
            }
        }

        impl<R, $($param),*> Clone for $name<R, $($param),*> {
            fn clone(&self) -> Self {
                Self { named: self.named.clone(), kind: PhantomData }
            }
        }

        impl<R, $($param),*> fmt::Debug for $name<R, $($param),*> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.named.name()).finish()
            }
        }

        impl<S, R: Request, $($param),*> Layer<S> for $name<R, $($param),*>
        where
            Self: Callback<R>,
        {
            type Service = CallbackService<S, R>;

            fn layer(&self, inner: S) -> Self::Service {
                Callbacks::new().with(self.clone()).layer(inner)
            }
        }

        impl<R: Request, $($param: 'static),*> Erased<R> for $name<R, $($param),*>
        where
            $($bounds)*
        {
            $method

            fn name(&self) -> Cow<'static, str> {
                self.named.name()
            }

            fn hooks(&self) -> HookSet {
                HookSet::$hook
            }

            fn is_guard(&self) -> bool {
                self.named.is_guard
            }
        }

        impl<R: Request, $($param: 'static),*> Callback<R> for $name<R, $($param),*>
        where
            $($bounds)*
        {
            async fn $hook_name(&self, $($arg: $ty),*) -> Result<$decision<R::Response>> {
                Erased::$hook_name(self, $($arg),*).await.map($open)
            }

            fn name(&self) -> Cow<'static, str> {
                self.named.name()
            }

            fn is_guard(&self) -> bool {
                self.named.is_guard
            }

            fn erase(self) -> ArcCallback<R> {
                // Not through `Callback`, whose hooks are futures: a plain function returns its
                // decision at once.
                ArcCallback::erased(self)
            }
        }
    };
}

function_callback! {
    /// A function that runs before a call; created by [`before_model`](super::before_model) and the
    /// like.
    Before<F, O, M> for BEFORE
    where {
        F: Fn(&mut R) -> O + Send + Sync,
        O: IntoHook<R::Response, M>,
    }
    fn before<'a>(&'a self, request: &'a mut R) -> ActionFuture<'a, R::Response> {
        (self.named.function)(request).into_hook(Seal)
    }
    as before(request: &mut R) -> Action, Action::unboxed
}

function_callback! {
    /// A function that runs after a call; created by [`after_model`](super::after_model) and the
    /// like.
    After<F, O, M> for AFTER
    where {
        F: Fn(&R, &R::Response) -> O + Send + Sync,
        O: IntoHook<R::Response, M>,
    }
    fn after<'a>(
        &'a self,
        request: &'a R,
        response: &'a R::Response,
    ) -> ActionFuture<'a, R::Response> {
        (self.named.function)(request, response).into_hook(Seal)
    }
    as after(request: &R, response: &R::Response) -> Action, Action::unboxed
}

function_callback! {
    /// A function that runs after a failed call; created by
    /// [`on_model_error`](super::on_model_error) and the like.
    OnError<F, O, M> for ON_ERROR
    where {
        F: Fn(&mut R, &Error) -> O + Send + Sync,
        O: IntoRecoveryHook<R::Response, M>,
    }
    fn on_error<'a>(
        &'a self,
        request: &'a mut R,
        error: &'a Error,
    ) -> MaybeFuture<'a, Result<Recovery<R::Response>>> {
        (self.named.function)(request, error).into_recovery_hook(Seal)
    }
    as on_error(request: &mut R, error: &Error) -> Recovery, identity
}

function_callback! {
    /// An async function that borrows the request before a call; created by
    /// [`before_model_async`](super::before_model_async) and the like.
    BeforeAsync<F> for BEFORE
    where {
        F: for<'b> Borrowing<(&'b mut R,), Output: IntoAction<R::Response>>,
    }
    fn before<'a>(&'a self, request: &'a mut R) -> ActionFuture<'a, R::Response> {
        let future = self.named.function.run((request,), Seal);
        MaybeFuture::pending(async move { future.await.into_action(Seal).map(Action::boxed) })
    }
    as before(request: &mut R) -> Action, Action::unboxed
}

function_callback! {
    /// An async function that borrows the request and the response after a call; created by
    /// [`after_model_async`](super::after_model_async) and the like.
    AfterAsync<F> for AFTER
    where {
        F: for<'b> Borrowing<(&'b R, &'b R::Response), Output: IntoAction<R::Response>>,
    }
    fn after<'a>(
        &'a self,
        request: &'a R,
        response: &'a R::Response,
    ) -> ActionFuture<'a, R::Response> {
        let future = self.named.function.run((request, response), Seal);
        MaybeFuture::pending(async move { future.await.into_action(Seal).map(Action::boxed) })
    }
    as after(request: &R, response: &R::Response) -> Action, Action::unboxed
}

function_callback! {
    /// An async function that borrows the request and the error of a failed call; created by
    /// [`on_model_error_async`](super::on_model_error_async) and the like.
    OnErrorAsync<F> for ON_ERROR
    where {
        F: for<'b> Borrowing<(&'b mut R, &'b Error), Output: IntoRecovery<R::Response>>,
    }
    fn on_error<'a>(
        &'a self,
        request: &'a mut R,
        error: &'a Error,
    ) -> MaybeFuture<'a, Result<Recovery<R::Response>>> {
        let future = self.named.function.run((request, error), Seal);
        MaybeFuture::pending(async move { future.await.into_recovery(Seal) })
    }
    as on_error(request: &mut R, error: &Error) -> Recovery, identity
}
