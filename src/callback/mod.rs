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
//! band do not see it. [`Error::abort`](crate::Error::abort),
//! [`Error::interrupt`](crate::Error::interrupt) and
//! [`Error::end_invocation`](crate::Error::end_invocation) end more than the call: they are
//! recorded in the run's context, and nothing outside can undo them. If an `after` returns an
//! interrupt or an end of the invocation, the run ends, but the call keeps its response and counts
//! as successful; no further `after` of it runs. A panic in a hook becomes an error of kind
//! [`Callback`](crate::ErrorKind::Callback) that names the callback and the hook.
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
//! | `Policy<.., Box<dyn Error + Send + Sync>>` is not satisfied, of tower's `RetryLayer` | the layer inside it, such as tower's timeout, has that error, and the policy is for [`Error`](crate::Error) | `.layer(MapErrLayer::new(Error::from))` between them |
//! | `lifetime may not live long enough` at `async move` | the future borrows the request | copy what it needs before the `async move`, or use the `_async` constructor |

mod action;
mod arc_callback;
mod bundle;
mod call_state;
#[expect(
    clippy::module_inception,
    reason = "a trait is in the file of its name"
)]
mod callback;
mod constructors;
mod erased;
mod function;
pub mod future;
mod hook;
pub(crate) mod hook_set;
mod life;
mod list;
mod loop_rules;
mod members;
mod named_tool;
mod names;
mod phase;
mod position;
mod probe;
mod rules;
mod service;
mod stack;
mod tree;
mod wrap;

pub use self::action::{Action, Outcome, Recovery};
pub use self::arc_callback::ArcCallback;
pub use self::bundle::Bundle;
pub(crate) use self::bundle::RunBundles;
pub use self::callback::Callback;
pub(crate) use self::callback::erase;
pub use self::constructors::*;
pub use self::function::{
    After, AfterAsync, Before, BeforeAsync, Borrowing, IntoAction, IntoHook, IntoRecovery,
    IntoRecoveryHook, OnError, OnErrorAsync,
};
pub use self::list::Callbacks;
pub use self::loop_rules::{
    AfterAgentRespond, AfterModelRespond, AnsweredToolCalls, AtLimit, AtNoAnswer, BeyondLimit,
    LoopRules, NextTurn, OthersTurns, Placeholders, ToolCalls, ToolFailure, UnknownTool,
};
pub(crate) use self::named_tool::NamedTool;
pub(crate) use self::position::Position;
pub use self::rules::{CallbackRules, Remaining, Rules};
pub use self::service::CallbackService;
pub(crate) use self::stack::{InAgent, Stacks, merged};
pub use self::stack::{LayerInner, StackBuilder};
pub(crate) use self::tree::Tree;
pub use self::tree::at_no_answer;
pub use self::wrap::{Next, Wrap, WrapService};
