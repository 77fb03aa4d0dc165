//! Fails calls that take too long.
//!
//! ```text
//! CallTimeoutLayer<R>: Layer<S>    where S: Service<R, Response = R::Response>
//! ```
//!
//! | limit | counts | applies to |
//! |---|---|---|
//! | [`new`](CallTimeoutLayer::new) | from the call to its response | every call |
//! | [`first_delta`](CallTimeoutLayer::first_delta) | from the call to the first delta | streamed model calls |
//! | [`idle`](CallTimeoutLayer::idle) | from one delta to the next, or to the end of the stream | streamed model calls |
//!
//! The last two have no effect on calls that are not streamed. They count the deltas that pass this
//! layer: a delta that a callback inside this layer buffers has not arrived yet, so register the
//! layer last. If a streamed call is sent to a model that does not stream, its response must arrive
//! within the limit for the first delta.
//!
//! Time spent waiting for the consumer of the stream does not count, unlike with
//! [`tower::timeout`]. Time that a callback's [mapper](tower_agent::stream::Mapper) makes the model
//! wait does count.
//!
//! The error has the kind [`Timeout`](tower_agent::ErrorKind::Timeout), which is retryable. The
//! inner call is dropped.
//!
//! ```
//! use std::time::Duration;
//!
//! use tower_agent_middleware::timeout::CallTimeoutLayer;
//! use tower_agent::{Agent, BoxError, Tool};
//! use tower_agent_test::{ScriptedModel, Turn};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! # let model = ScriptedModel::new([Turn::pending()]);
//! let agent = Agent::builder(model)
//!     .tool(
//!         Tool::function("search", "Searches the web.", |words: String| words)
//!             .layer(CallTimeoutLayer::new(Duration::from_secs(60))),
//!     )
//!     .model_layer(
//!         CallTimeoutLayer::new(Duration::from_secs(120))
//!             .first_delta(Duration::from_secs(30))
//!             .idle(Duration::from_secs(30)),
//!     )
//!     .agent_layer(CallTimeoutLayer::new(Duration::from_secs(600)))
//!     .build()?;
//!
//! let error = agent.run("hello").await.unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "model call of agent `agent`: timed out: no response within 120s (limit for the whole call)"
//! );
//! # Ok(())
//! # }
//! ```

mod clock;
mod layer;
mod service;

pub use self::layer::CallTimeoutLayer;
pub use self::service::CallTimeout;

/// Futures of the layer in this module.
pub mod future {
    pub use super::service::ResponseFuture;
}
