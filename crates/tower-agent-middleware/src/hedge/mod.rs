//! Starts a second attempt at a model call that is slow to begin; the first with output wins.
//!
//! ```text
//! HedgeLayer: Layer<S>    where S: Service<ModelRequest, Response = ModelResponse> + Clone
//! ```
//!
//! If an attempt has shown no output for a [time](HedgeLayer::new), a second one starts beside it.
//! The first *delta* decides, or the first response where nothing is streamed: the other attempt is
//! dropped at once, and none of its deltas is ever seen. Once an attempt has output, no other
//! starts.
//!
//! | the attempt | the call |
//! |---|---|
//! | fails before the second has started | fails with it: a [retry](crate::retry) is another layer |
//! | fails beside the other | waits for the other; if both fail, has the error of the later one |
//! | fails behind its first delta | fails with it |
//! | gives [no answer](tower_agent::ModelResponse::no_answer) beside the other, before any delta, and the agent [does not accept](tower_agent::agent::AtNoAnswer) one | waits for the other; if that fails, has this response |
//! | ends the run, as an abort does | ends it at once |
//!
//! A [budget](crate::budget) is charged for both: the response of the one, and of the other the
//! tokens that its provider told, or an estimate, as for any call that was cut. The delay can be a
//! [percentile](HedgeLayer::percentile) of the calls before, with a fixed delay until 20 are known;
//! an attempt that was dropped counts with the time that it had. A [budget of
//! attempts](HedgeLayer::budget) keeps their number a share of all calls.
//!
//! A call whose provider runs tools that may change something has no second attempt; see
//! [`hedge_if`](HedgeLayer::hedge_if). Tools that a model was configured with, outside the request,
//! are not seen here.
//!
//! ```
//! use std::time::Duration;
//!
//! use tower::service_fn;
//! use tower_agent::{Agent, BoxError, ModelRequest, ModelResponse};
//! use tower_agent_middleware::hedge::HedgeLayer;
//! # use std::sync::atomic::{AtomicUsize, Ordering};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! # static CALLS: AtomicUsize = AtomicUsize::new(0);
//! let model = service_fn(|_: ModelRequest| async {
//!     // The first call hangs.
//!     if CALLS.fetch_add(1, Ordering::Relaxed) == 0 {
//!         std::future::pending::<()>().await;
//!     }
//!     Ok::<_, BoxError>(ModelResponse::from_text("It rains."))
//! });
//! let agent = Agent::builder(model)
//!     .model_layer(HedgeLayer::new(Duration::from_secs(2)))
//!     .build()?;
//! assert_eq!(agent.run("How is the weather?").await?.text(), "It rains.");
//! # Ok(())
//! # }
//! ```
//!
//! # Where to layer it
//!
//! Around a [pool](crate::pool), so that the second attempt goes to another endpoint, and inside a
//! [retry](crate::retry), a [cache](crate::cache) and a [context window](crate::context_window),
//! whose summaries would otherwise count as the time of an attempt. Put a [rate
//! limit](crate::rate_limit) and a [time limit](crate::timeout) of each attempt inside.

mod delay;
mod layer;
mod plan;
mod race;
mod service;

pub use self::layer::HedgeLayer;
pub use self::service::Hedge;

/// Futures of the layer in this module.
pub mod future {
    pub use super::service::ResponseFuture;
}
