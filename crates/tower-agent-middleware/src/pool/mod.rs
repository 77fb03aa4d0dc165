//! Shares calls out between several endpoints of equal models: keys, regions or hosts.
//!
//! ```text
//! Pool<R>: Service<R: Request, Response = R::Response> + Clone
//! ```
//!
//! Each call goes to the cheaper of two random endpoints, by tower's
//! [`Balance`](tower::balance::p2c::Balance). The cost of an endpoint is the number of its open
//! calls times the wait for the first output, which is the first delta of a stream, or the
//! response:
//!
//! - A streamed call is open until its end, and so is a call that waits for its endpoint to be
//!   ready.
//! - The wait is an average that rises at once and falls within some ten seconds, so a slow
//!   endpoint is tried again now and then. The oldest call without output counts with its age: an
//!   endpoint that hangs becomes expensive before its calls end.
//! - A failure counts as a slow call, and so does a call that was dropped while it waited, as by a
//!   [hedge](crate::hedge).
//! - So does a response that is [no answer](tower_agent::ModelResponse::no_answer), where the agent
//!   [does not accept](tower_agent::agent::AtNoAnswer) one. It is no failure of its endpoint, which
//!   a question can bring about on purpose: one that asks for a single token, say.
//!
//! After a number of [failures](Pool::failures) in a row an endpoint is taken out for a
//! [pause](Pool::pause), or for as long as it asks for. Then one call tests it. So an endpoint that
//! fails fast draws no calls. One endpoint always stays, even if it fails.
//!
//! ```
//! use std::time::Duration;
//!
//! use tower_agent::{Agent, BoxError, Error, ErrorKind};
//! use tower_agent_middleware::pool::Pool;
//! use tower_agent_middleware::retry::CallRetryLayer;
//! use tower_agent_test::{ScriptedModel, Turn};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! # let refused = Error::new(ErrorKind::RateLimited, "too many requests");
//! let refuses = ScriptedModel::always(Turn::error(refused));
//! let works = ScriptedModel::always(Turn::from_text("It rains."));
//! let pool = Pool::new([("first key", refuses), ("second key", works)])
//!     .failures(2)
//!     .pause(Duration::from_secs(30));
//!
//! // The retry gives a call that has failed to another endpoint.
//! let agent = Agent::builder(pool).model_layer(CallRetryLayer::new()).build()?;
//! for _ in 0..20 {
//!     assert_eq!(agent.run("How is the weather?").await?.text(), "It rains.");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Where to put it
//!
//! In the place of a model or a tool, with the [retry](crate::retry) and the [hedge](crate::hedge)
//! outside. Put limits of a key, such as a [rate limit](crate::rate_limit), around its endpoint.
//!
//! Calls of one run go to any endpoint. Where a prompt cache or a model's own reasoning ties a
//! conversation to an endpoint, choose it with a [router](crate::router).

mod endpoint;
mod load;
mod service;

pub use self::service::Pool;

/// Futures of the service in this module.
pub mod future {
    pub use super::service::ResponseFuture;
}
