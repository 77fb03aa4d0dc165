//! One trait with the hooks of every call.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;

use crate::callback::hook_set::{AFTER, BEFORE, HookSet, NoHook, ON_ERROR};
use crate::callback::{Action, ArcCallback, Bundle, Callback, Outcome, Recovery, erase};
use crate::error::{Error, Result};
use crate::model::{ModelRequest, ModelResponse};
use crate::run::{AgentRequest, AgentResponse};
use crate::tool::{ToolRequest, ToolResponse};
use crate::type_name::short_type_name;

macro_rules! hooks {
    ($(
        $call:literal $R:ty => $T:ty {
            $before:ident $after:ident $on_error:ident $on_end:ident
        }
    )*) => {
        /// Every hook of every call by its name, for one object that has them together.
        ///
        /// Every method has a default that does nothing, and means what the method of [`Callback`]
        /// means that it is named after. A [`Bundle`] is made of one, and an agent takes it by
        /// [`callbacks`](crate::AgentBuilder::callbacks), each call's hooks as one callback of that
        /// call.
        ///
        /// ```
        /// use tower_agent::{
        ///     Action, Error, ModelRequest, ModelResponse, Request, Result, ToolRequest,
        ///     ToolResponse,
        /// };
        /// use tower_agent::compat::Hooks;
        ///
        /// /// Stops a run that calls its model too often, and keeps it from some tools.
        /// struct Policy {
        ///     max_calls: u32,
        ///     blocked: Vec<String>,
        /// }
        ///
        /// impl Hooks for Policy {
        ///     async fn before_model(
        ///         &self,
        ///         request: &mut ModelRequest,
        ///     ) -> Result<Action<ModelResponse>> {
        ///         match request.context().iteration() {
        ///             n if n >= self.max_calls => Err(Error::abort("too many model calls")),
        ///             _ => Ok(Action::Continue),
        ///         }
        ///     }
        ///
        ///     async fn before_tool(
        ///         &self,
        ///         request: &mut ToolRequest,
        ///     ) -> Result<Action<ToolResponse>> {
        ///         if self.blocked.iter().any(|tool| tool == request.name()) {
        ///             return Ok(Action::Respond(ToolResponse::error("not allowed")));
        ///         }
        ///         Ok(Action::Continue)
        ///     }
        ///
        ///     // No other callback's decision may let a blocked tool run.
        ///     fn is_guard(&self) -> bool {
        ///         true
        ///     }
        /// }
        /// ```
        pub trait Hooks: Send + Sync + 'static {
            $(
                #[doc = concat!("[`Callback::before`] of ", $call, " calls.")]
                fn $before(
                    &self,
                    request: &mut $R,
                ) -> impl Future<Output = Result<Action<$T>>> + Send {
                    let _ = request;
                    NoHook::<OfHooks<Self>, $R, _, BEFORE>::new()
                }

                #[doc = concat!("[`Callback::after`] of ", $call, " calls.")]
                fn $after(
                    &self,
                    request: &$R,
                    response: &$T,
                ) -> impl Future<Output = Result<Action<$T>>> + Send {
                    let _ = (request, response);
                    NoHook::<OfHooks<Self>, $R, _, AFTER>::new()
                }

                #[doc = concat!("[`Callback::on_error`] of ", $call, " calls.")]
                fn $on_error(
                    &self,
                    request: &mut $R,
                    error: &Error,
                ) -> impl Future<Output = Result<Recovery<$T>>> + Send {
                    let _ = (request, error);
                    NoHook::<OfHooks<Self>, $R, _, ON_ERROR>::new()
                }

                #[doc = concat!("[`Callback::on_end`] of ", $call, " calls.")]
                fn $on_end(&self, request: &$R, outcome: Outcome<'_, $T>) {
                    let _ = (request, outcome);
                }
            )*

            /// Returns the name used in errors, traces and [`explain`](crate::Agent::explain).
            /// Defaults to the type's name.
            fn name(&self) -> Cow<'static, str> {
                Cow::Borrowed(short_type_name::<Self>())
            }

            /// Returns whether it is a guard around every call; see [`Callback::is_guard`].
            /// Defaults to `false`.
            fn is_guard(&self) -> bool {
                false
            }

            /// Returns the tools that it names; see [`Callback::named_tools`]. Defaults to none.
            fn named_tools(&self) -> Vec<Arc<str>> {
                Vec::new()
            }

            /// Returns the tools that it takes to be agents; see [`Callback::named_agents`].
            /// Defaults to none.
            fn named_agents(&self) -> Vec<Arc<str>> {
                Vec::new()
            }
        }

        // A new hook has a method for each call in `Hooks`, and is forwarded in the implementations
        // below.
        const _: () = {
            let [_before, _after, _on_error, _on_end] = HookSet::ALL;
        };

        $(
            #[deny(clippy::missing_trait_methods)]
            impl<H: Hooks> Callback<$R> for OfHooks<H> {
                fn before(
                    &self,
                    request: &mut $R,
                ) -> impl Future<Output = Result<Action<$T>>> + Send {
                    self.0.$before(request)
                }

                fn after(
                    &self,
                    request: &$R,
                    response: &$T,
                ) -> impl Future<Output = Result<Action<$T>>> + Send {
                    self.0.$after(request, response)
                }

                fn on_error(
                    &self,
                    request: &mut $R,
                    error: &Error,
                ) -> impl Future<Output = Result<Recovery<$T>>> + Send {
                    self.0.$on_error(request, error)
                }

                fn on_end(&self, request: &$R, outcome: Outcome<'_, $T>) {
                    self.0.$on_end(request, outcome);
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

                fn named_agents(&self) -> Vec<Arc<str>> {
                    self.0.named_agents()
                }

                fn erase(self) -> ArcCallback<$R> {
                    erase(self)
                }
            }
        )*
    };
}

hooks! {
    "agent" AgentRequest => AgentResponse { before_agent after_agent on_agent_error on_agent_end }
    "model" ModelRequest => ModelResponse { before_model after_model on_model_error on_model_end }
    "tool" ToolRequest => ToolResponse { before_tool after_tool on_tool_error on_tool_end }
}

// One object, three callbacks: a type cannot implement `Callback` for three calls by one blanket
// implementation for all types with `Hooks`, which would exclude every other implementation.
/// The hooks for one call, as a callback of that call.
struct OfHooks<H: ?Sized>(Arc<H>);

impl<H: Hooks> From<H> for Bundle {
    fn from(hooks: H) -> Self {
        Arc::new(hooks).into()
    }
}

/// Lets the caller keep a handle.
impl<H: Hooks> From<Arc<H>> for Bundle {
    fn from(hooks: Arc<H>) -> Self {
        Self::new()
            .on_agent(OfHooks(hooks.clone()))
            .on_model(OfHooks(hooks.clone()))
            .on_tool(OfHooks(hooks))
    }
}
