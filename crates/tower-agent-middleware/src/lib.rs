//! Middleware: ready-made callbacks, layers and services for production.
//!
//! | when | use |
//! |---|---|
//! | a provider fails now and then | [`retry`] |
//! | a provider is down, or a conversation is too long for a model | [`fallback`] |
//! | a provider or a tool is down, and each call waits for it | [`circuit_breaker`] |
//! | a provider limits requests or tokens a minute, or tenants share one key | [`rate_limit`] |
//! | a provider's capacity is not known, or changes | [`adaptive_concurrency`] |
//! | there are several keys, regions or hosts | [`pool`] |
//! | some calls take much longer to begin than others | [`hedge`] |
//! | the model depends on the request | [`router`] |
//! | equal calls are made again and again, or at the same time | [`cache`] |
//! | a call hangs or stalls | [`timeout`] |
//! | a model makes the same tool call again and again | [`loop_guard`] |
//! | a conversation is longer than the model's context window | [`context_window`] |
//! | a model has more tools than it should read | [`tool_search`] |
//! | a run must not exceed a cost | [`budget`] |
//! | personal data or keys must not be exposed | [`redact`] |
//! | a person must approve a tool call | [`approval`] |
//! | content that a model reads must not decide what it does | [`flow`] |
//! | model input or output must be checked | [`guardrail`] |
//! | a model works on a task of many steps | [`todo`](mod@todo) |
//! | a tool does not exist yet, or must not be called | [`emulate`] |
//! | tests must show what happens when a provider fails | [`chaos`] |
//!
//! Those that share a state between calls, such as limits, are [gauges](tower_agent::gauge): what
//! is left of each can be read at any time.
//!
//! [The guide](tower_agent::guide::guards) says which to use for which problem, in which order, and
//! how to write your own. All of them act through `tower-agent`'s public API alone, so each also
//! serves as an example. When in doubt a guard fails closed: the call does not run. A callback
//! whose [`is_guard`](tower_agent::Callback::is_guard) returns `true` runs whatever another
//! callback decided, and under every [semantics](tower_agent::AgentBuilder::semantics).
//!
//! ```
//! use std::time::Duration;
//!
//! use tower::ServiceBuilder;
//! use tower_agent_middleware::approval::Approval;
//! use tower_agent_middleware::budget::{Budget, Limits};
//! use tower_agent_middleware::fallback::Fallback;
//! use tower_agent_middleware::redact::{Detector, Redact};
//! use tower_agent_middleware::retry::CallRetryLayer;
//! use tower_agent_middleware::timeout::CallTimeoutLayer;
//! # use tower_agent::{Agent, BoxError, Error, ErrorKind};
//! # use tower_agent_test::{ScriptedModel, Turn};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! # let busy = Error::new(ErrorKind::Overloaded, "busy");
//! # let large = ScriptedModel::new([Turn::error(busy.clone()), Turn::error(busy)]);
//! # let small = ScriptedModel::new([Turn::from_text("It rains.")]);
//! let large = ServiceBuilder::new()
//!     .layer(CallRetryLayer::new().max_attempts(2))
//!     .layer(CallTimeoutLayer::new(Duration::from_secs(60)).idle(Duration::from_secs(10)))
//!     .service(large);
//!
//! let agent = Agent::builder(Fallback::new(large).or(small))
//!     .global_callbacks(Redact::new([Detector::email(), Detector::secret()])?)
//!     .global_callbacks(Budget::new(Limits::new().model_calls(50)))
//!     .on_tool(Approval::of_effects())
//!     .tool_layer(CallTimeoutLayer::new(Duration::from_secs(60)))
//!     .build()?;
//! assert_eq!(agent.run("How is the weather?").await?.text(), "It rains.");
//! # Ok(())
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
// Tests may; the library may not.
#![cfg_attr(
    not(test),
    warn(clippy::expect_used, clippy::panic, clippy::unwrap_used)
)]

/// The example of the README, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod admission;
mod asked;
mod bounds;
mod estimate;
mod first_output;
mod key_of;
mod keyed;
mod lock;
mod no_answer;
mod opaque_future;
mod ours;
mod own_tool;
mod predicate;
mod reveal;

pub mod adaptive_concurrency;
pub mod approval;
pub mod budget;
#[cfg(feature = "cache")]
pub mod cache;
pub mod chaos;
pub mod circuit_breaker;
pub mod context_window;
pub mod emulate;
pub mod fallback;
pub mod flow;
pub mod guardrail;
pub mod hedge;
pub mod loop_guard;
#[cfg(feature = "pool")]
pub mod pool;
pub mod rate_limit;
#[cfg(feature = "redact")]
pub mod redact;
pub mod retry;
pub mod router;
pub mod timeout;
pub mod todo;
pub mod tool_search;
