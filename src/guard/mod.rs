//! Guards: ready-made layers and services for what goes wrong.
//!
//! ```text
//! a guard: Layer<S>    where S: Service<R, Response = R::Response>
//! ```
//!
//! | guard | does |
//! |---|---|
//! | [`fallback`] | asks another model when one has failed |
//! | [`retry`] | makes a failed call again, after a while |
//! | [`timeout`] | fails a call that takes too long |
//!
//! They are made of the crate's public API alone, so each is an example as well. Registered first
//! is outermost; the order that does what is meant, for a model, is
//!
//! ```text
//! fallback > per model: retry > timeout > model
//! ```
//!
//! A timeout inside a retry bounds each attempt; outside, it bounds all of them and the waits
//! between.
//!
//! ```
//! use std::time::Duration;
//!
//! use tower::ServiceBuilder;
//! use tower_agent::guard::fallback::Fallback;
//! use tower_agent::guard::retry::RetryLayer;
//! use tower_agent::guard::timeout::TimeoutLayer;
//! use tower_agent::testing::{ScriptedModel, Turn};
//! use tower_agent::{Agent, BoxError, Error, ErrorKind};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! # let busy = Error::new(ErrorKind::Overloaded, "busy");
//! # let large = ScriptedModel::new([Turn::error(busy.clone()), Turn::error(busy)]);
//! # let small = ScriptedModel::new([Turn::text("It rains.")]);
//! let large = ServiceBuilder::new()
//!     .layer(RetryLayer::new().with_attempts(2))
//!     .layer(TimeoutLayer::new(Duration::from_secs(60)).with_idle(Duration::from_secs(10)))
//!     .service(large);
//!
//! let agent = Agent::builder(Fallback::new(large).or(small)).build()?;
//! assert_eq!(agent.run("How is the weather?").await?.text(), "It rains.");
//! # Ok(())
//! # }
//! ```

pub mod fallback;
pub mod retry;
pub mod timeout;

mod when;
