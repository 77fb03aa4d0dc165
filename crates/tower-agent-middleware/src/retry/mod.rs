//! Retries failed calls, with backoff.
//!
//! ```text
//! CallRetryLayer: Layer<S>    where S: Service<R, Response = R::Response> + Clone
//! ```
//!
//! This is [`tower::retry`] with a policy for the calls of an agent:
//!
//! - An abort, an interrupt and an end of the invocation are never retried.
//! - A streamed call is retried only while no output was streamed, unless
//!   [`restart_streams`](CallRetryLayer::restart_streams) is set; the stream then emits
//!   [`AttemptDiscarded`](tower_agent::stream::EventKind::AttemptDiscarded) for the failed attempt.
//!   An agent call whose run is streamed counts as having output.
//! - A tool is retried only if its [effect](tower_agent::Tool::effect) is declared
//!   [`Pure`](tower_agent::Effect::Pure) or [`Idempotent`](tower_agent::Effect::Idempotent); the
//!   default is `Mutating`. [`build`](tower_agent::AgentBuilder::build) warns about a retry layer
//!   around tools none of which can be retried.
//! - An error type of a tool's own has the kind [`Tool`](tower_agent::ErrorKind::Tool), which is
//!   not retryable. Use [`retry_if`](CallRetryLayer::retry_if) to retry it.
//! - A retry of an agent call continues after the last completed step: tools that have a result do
//!   not run again. Put the retry around the model and the tools all the same: it repeats less.
//! - A response that is [no answer](tower_agent::ModelResponse::no_answer) is retried where the
//!   agent does not accept one, by its [`AtNoAnswer`](tower_agent::agent::AtNoAnswer). The agent
//!   gets the last such response, and asks again or fails.
//! - If the server asks for a wait, that wait replaces the backoff. If the wait is longer than
//!   [`max_retry_after`](CallRetryLayer::max_retry_after), the error is returned at once.
//! - All calls through one layer share a retry budget, which keeps retries from flooding a provider
//!   that is down.
//!
//! The error that is finally returned says how many attempts were made and why there was no other.
//! Layers inside this one see each attempt; layers outside see one call.
//!
//! ```
//! use tower_agent_middleware::retry::CallRetryLayer;
//! use tower_agent::{Agent, BoxError, Error, ErrorKind};
//! use tower_agent_test::{ScriptedModel, Turn};
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
