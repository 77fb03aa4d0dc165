//! Limits how many calls run at a time, by how the provider bears them.
//!
//! ```text
//! AdaptiveConcurrencyLayer: Layer<S>    where S: Service<R: Request, Response = R::Response> + Clone
//! ```
//!
//! For a provider whose capacity is not known or changes: batch jobs against a shared key, a model
//! on a server of your own. The limit changes with the end of calls, as the window of TCP does
//! (additive increase, multiplicative decrease):
//!
//! | the calls | the limit |
//! |---|---|
//! | succeed, while as many run as may | doubles with each round of calls, and after its first fall grows by one |
//! | are refused: [`RateLimited`](tower_agent::ErrorKind::RateLimited), [`Overloaded`](tower_agent::ErrorKind::Overloaded) | falls by 30 % |
//! | wait for their first output [much longer](AdaptiveConcurrencyLayer::tolerance) than usual | falls by 30 % |
//! | fail otherwise, or are dropped | stays |
//!
//! It falls once for the calls that run together, and not for those that had begun before it fell.
//! The wait is that for the first delta of a stream, or for the response, averaged over some ten
//! calls. The usual wait is the shortest such average of the last half minute or minute, so a
//! provider that has become slower for good is accepted.
//!
//! Calls above the limit wait inside, first come first served; a call that is dropped leaves the
//! queue. A streamed call counts until its end. Around tools or agents, a call that is made inside
//! another which has a place does not wait for one: that call would keep its own for ever.
//!
//! ```
//! use tower_agent::{Agent, BoxError};
//! use tower_agent_middleware::adaptive_concurrency::AdaptiveConcurrencyLayer;
//! use tower_agent_test::{ScriptedModel, Turn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! # let model = ScriptedModel::always(Turn::from_text("Fine."));
//! let limit = AdaptiveConcurrencyLayer::new().initial(8).most(200);
//! let agent = Agent::builder(model).model_layer(limit.clone()).build()?;
//! agent.run("How are you?").await?;
//! assert_eq!(limit.limit(""), 8);
//! # Ok(())
//! # }
//! ```
//!
//! # Where to layer it
//!
//! Inside the [retry](crate::retry), so that a refusal is seen and an attempt that waits for its
//! turn holds no place; outside the [time limit](crate::timeout) of an attempt; around each
//! endpoint of a [pool](crate::pool). Refusals of layers inside, such as a [rate
//! limit](crate::rate_limit), count as those of the provider: put them outside.

mod controller;
mod layer;
mod limits;
mod service;

pub use self::layer::AdaptiveConcurrencyLayer;
pub use self::service::AdaptiveConcurrency;

/// Futures of the layer in this module.
pub mod future {
    pub use super::service::ResponseFuture;
}
