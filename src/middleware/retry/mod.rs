//! Makes a failed call again, after a while.
//!
//! ```text
//! CallRetryLayer: Layer<S>    where S: Service<R, Response = R::Response> + Clone
//! ```
//!
//! It is [`tower::retry`] with a policy that knows what a call of an agent is:
//!
//! - An abort, an interrupt and an end of the invocation are never retried.
//! - A streamed answer is retried only while nothing of it has been seen, unless
//!   [`restart_streams`](CallRetryLayer::restart_streams) says otherwise; the stream then announces
//!   by itself that the first attempt is void. An agent whose run is watched counts as seen.
//! - A tool is called again only if it is declared [`Pure`](crate::Effect::Pure) or
//!   [`Idempotent`](crate::Effect::Idempotent): by [`Tool::effect`](crate::Tool::effect), since it
//!   is `Mutating` by default. [`build`](crate::AgentBuilder::build) warns of a retry that helps no
//!   tool. And not for every failure: one that it has of a
//!   type of its own is a [`Tool`](crate::ErrorKind::Tool) error, which is not retryable unless
//!   [`retry_if`](CallRetryLayer::retry_if) says so. An agent that is called again runs its tools
//!   again, whatever they are: there, let the retry stand around the model and the tools instead
//!   unless that does no harm.
//! - A wait that the server asks for stands in the place of the backoff. If it is longer than
//!   [`with_max_retry_after`](CallRetryLayer::with_max_retry_after), the error goes up at once.
//! - A budget that all calls through one layer share keeps retries from flooding a provider that
//!   is down.
//!
//! The error that goes up in the end says how many attempts were made, and why no other was. What
//! stands inside the layer sees each attempt, what stands outside sees one call.
//!
//! ```
//! use tower_agent::middleware::retry::CallRetryLayer;
//! use tower_agent::testing::{ScriptedModel, Turn};
//! use tower_agent::{Agent, BoxError, Error, ErrorKind};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! let busy = Error::new(ErrorKind::Overloaded, "busy");
//! let model = ScriptedModel::new([Turn::error(busy.clone()), Turn::error(busy), Turn::from_text("hi")]);
//!
//! let agent = Agent::builder(model.clone()).model_layer(CallRetryLayer::new()).build()?;
//! assert_eq!(agent.run("hello").await?.text(), "hi");
//! assert_eq!(model.requests().len(), 3);
//! # Ok(())
//! # }
//! ```

mod layer;
mod policy;
mod service;

pub use self::layer::CallRetryLayer;
pub use self::service::CallRetry;

/// Futures of the layer in this module.
pub mod future {
    pub use super::service::ResponseFuture;
}
