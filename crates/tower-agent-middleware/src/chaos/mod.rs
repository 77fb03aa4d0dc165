//! Makes calls fail on purpose, by a seed: for tests, and for a look at how a service behaves when
//! its providers do not.
//!
//! ```text
//! ChaosLayer<R>: Layer<S>    where S: Service<R: Request, Response = R::Response>
//! ```
//!
//! | fault | when | the call |
//! |---|---|---|
//! | [`delay`](ChaosLayer::delay) | before it | is made later |
//! | [`hang`](ChaosLayer::hang) | before it | is not made, and never ends |
//! | [`refuse`](ChaosLayer::refuse) | before it | is not made, and fails with 429 and a time to come again |
//! | [`fail`](ChaosLayer::fail) | before it | is not made, and fails with an error of yours |
//! | [`cut`](ChaosLayer::cut) | at any delta of its stream | fails after a part was seen |
//! | [`lose`](ChaosLayer::lose) | after it | was made, and its response is lost |
//! | [`hold_back`](ChaosLayer::hold_back) | after it | ends later, after calls that began later |
//!
//! The faults of the first, second and every later call follow from the seed alone: a test that
//! failed with a seed fails with it again, if it makes its calls in the same order. Each fault is
//! drawn on its own, so that one more leaves the others as they were.
//!
//! ```
//! use std::time::Duration;
//!
//! use tower::ServiceBuilder;
//! use tower_agent::{Agent, BoxError};
//! use tower_agent_middleware::chaos::ChaosLayer;
//! use tower_agent_middleware::retry::CallRetryLayer;
//! use tower_agent_test::{ScriptedModel, Turn};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! for seed in 0..100 {
//!     let model = ServiceBuilder::new()
//!         .layer(CallRetryLayer::new().max_attempts(20).restart_streams(true))
//!         .layer(ChaosLayer::new(seed).refuse(0.2, Duration::from_secs(1)).cut(0.2, 4))
//!         .service(ScriptedModel::always(Turn::from_text("It rains.")));
//!     let agent = Agent::builder(model).build()?;
//!     assert_eq!(agent.run("How is the weather?").await?.text(), "It rains.", "seed {seed}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Where to layer it
//!
//! Inside everything that must stand its faults, directly around the model or the tool.

mod cut;
mod layer;
mod plan;
mod service;

pub use self::layer::ChaosLayer;
pub use self::service::Chaos;

/// Futures of the layer in this module.
pub mod future {
    pub use super::service::ResponseFuture;
}
