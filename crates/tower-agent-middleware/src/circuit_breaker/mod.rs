//! Stops calling a model or a tool that keeps failing, until it has had time to recover.
//!
//! ```text
//! CircuitBreakerLayer: Layer<S>    where S: Service<R: Request, Response = R::Response>
//! ```
//!
//! | the circuit is | calls | changes |
//! |---|---|---|
//! | closed | are made | opens after a number of failures in a row |
//! | open | fail at once | lets one call through after a pause |
//! | tested by one call | fail at once, except that one | closes if it succeeds, opens again if it fails |
//!
//! A tool has a circuit of its own, found by its name; all calls of a model through one layer share
//! one. Clones of a layer share their circuits, and so do agents that are built with clones. Each
//! user or tenant may have [their own](CircuitBreakerLayer::by).
//!
//! A streamed call is judged at its end: a stream that breaks off has failed. A call that is
//! cancelled or dropped is not judged, nor is one that a limit of one [key](crate::rate_limit)
//! inside keeps away, and an answer that only says that the request was wrong shows that the
//! service works.
//!
//! A call that is not made fails with the kind [`Overloaded`](tower_agent::ErrorKind::Overloaded).
//! A [`Fallback`](crate::fallback) goes on to the next model at once, the model is told at once
//! that a tool does not work, and a [retry](crate::retry) around the breaker does not wait for it.
//!
//! ```
//! use std::time::Duration;
//!
//! use tower_agent_middleware::circuit_breaker::CircuitBreakerLayer;
//! use tower_agent_middleware::fallback::Fallback;
//! use tower_agent::{Agent, BoxError, Error, ErrorKind};
//! use tower_agent_test::{ScriptedModel, Turn};
//! use tower_layer::Layer;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! # let down = || Turn::error(Error::new(ErrorKind::Overloaded, "busy"));
//! # let large = ScriptedModel::new([down(), down()]);
//! # let calls = large.clone();
//! # let small = ScriptedModel::new(["One.", "Two.", "Three."].map(Turn::from_text));
//! let breaker = CircuitBreakerLayer::new().failures(2).pause(Duration::from_secs(60));
//! let agent = Agent::builder(Fallback::new(breaker.layer(large)).or(small)).build()?;
//!
//! // The large model fails twice. It is not asked the third time.
//! for answer in ["One.", "Two.", "Three."] {
//!     assert_eq!(agent.run("Count.").await?.text(), answer);
//! }
//! # assert_eq!(calls.requests().len(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! # Where to layer it
//!
//! Outside a [retry](crate::retry), a call counts once, however many attempts it takes; inside,
//! every attempt counts. It judges what it sees, so put a [time limit](crate::timeout) inside: a
//! call that hangs never fails otherwise.

pub(crate) mod circuit;
mod layer;
mod service;

pub use self::layer::CircuitBreakerLayer;
pub use self::service::CircuitBreaker;

/// Futures of the layer in this module.
pub mod future {
    pub use super::service::ResponseFuture;
}
