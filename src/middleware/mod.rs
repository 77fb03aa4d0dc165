//! Guards: ready-made callbacks, layers and services that keep a run within bounds.
//!
//! | when | take |
//! |---|---|
//! | a provider fails now and then | [`retry`] |
//! | a provider is down, or a conversation is too long for a model | [`fallback`] |
//! | a call hangs, or drips | [`timeout`] |
//! | a run must not cost more than this | [`budget`] |
//! | an address or a key must not be seen | [`redact`] |
//! | a person must agree before a tool runs | [`approval`] |
//! | a model must not be asked this, or must not say that | [`guardrail`] |
//!
//! [The guide](crate::guide::guards) says more of what to take for what, in which order, and how
//! to write a guard. They are made of nothing but the crate's public API, so each is an example as
//! well, and one of your own can do all that these do. When in doubt a guard fails closed: the
//! call is not made. [`Callback::is_guard`](crate::Callback::is_guard) has it asked whatever
//! another callback decided, and whatever the agent's
//! [semantics](crate::AgentBuilder::semantics).
//!
//! ```
//! use std::time::Duration;
//!
//! use tower::ServiceBuilder;
//! use tower_agent::middleware::approval::Approval;
//! use tower_agent::middleware::budget::{Budget, Limits};
//! use tower_agent::middleware::fallback::Fallback;
//! use tower_agent::middleware::redact::{Detector, Redact};
//! use tower_agent::middleware::retry::CallRetryLayer;
//! use tower_agent::middleware::timeout::CallTimeoutLayer;
//! # use tower_agent::testing::{ScriptedModel, Turn};
//! # use tower_agent::{Agent, BoxError, Error, ErrorKind};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! # let busy = Error::new(ErrorKind::Overloaded, "busy");
//! # let large = ScriptedModel::new([Turn::error(busy.clone()), Turn::error(busy)]);
//! # let small = ScriptedModel::new([Turn::from_text("It rains.")]);
//! let large = ServiceBuilder::new()
//!     .layer(CallRetryLayer::new().with_attempts(2))
//!     .layer(CallTimeoutLayer::new(Duration::from_secs(60)).with_idle(Duration::from_secs(10)))
//!     .service(large);
//!
//! let agent = Agent::builder(Fallback::new(large).or(small))
//!     .global(Redact::new([Detector::email(), Detector::secret()])?)
//!     .global(Budget::new(Limits::new().with_model_calls(50)))
//!     .on_tool(Approval::of_effects())
//!     .tool_layer(CallTimeoutLayer::new(Duration::from_secs(60)))
//!     .build()?;
//! assert_eq!(agent.run("How is the weather?").await?.text(), "It rains.");
//! # Ok(())
//! # }
//! ```

pub mod approval;
pub mod budget;
pub mod fallback;
pub mod guardrail;
#[cfg(feature = "redact")]
pub mod redact;
pub mod retry;
pub mod timeout;

mod when;
