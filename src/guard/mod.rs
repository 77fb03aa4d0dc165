//! Guards: ready-made callbacks that keep a run within bounds.
//!
//! ```text
//! Guard: Callback<R>    for the calls R that it stands around
//! ```
//!
//! A guard is registered like any other callback, and where it stands decides what it sees: what
//! is registered before it has acted before it. It is made of nothing but the crate's public API,
//! so a guard of your own can do all that these do. When in doubt a guard fails closed: the call
//! is not made. [`Callback::is_guard`](crate::Callback::is_guard) has its refusals count whatever the
//! agent's [semantics](crate::AgentBuilder::semantics).
//!
//! ```
//! use tower_agent::guard::approval::Approval;
//! use tower_agent::guard::budget::{Budget, Limits};
//! # use tower_agent::{Agent, BoxError, ModelRequest, ModelResponse};
//! # fn main() -> Result<(), BoxError> {
//! # let model = tower::service_fn(|_: ModelRequest| async {
//! #     Ok::<_, BoxError>(ModelResponse::text("done"))
//! # });
//! let agent = Agent::builder(model)
//!     .global(Budget::new(Limits::new().with_model_calls(50)))
//!     .on_tool(Approval::of_effects())
//!     .build()?;
//! # drop(agent);
//! # Ok(())
//! # }
//! ```

pub mod approval;
pub mod budget;
