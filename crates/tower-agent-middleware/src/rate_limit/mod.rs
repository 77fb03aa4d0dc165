//! Limits the rate of calls and of their tokens, and shares a limit out fairly.
//!
//! ```text
//! RateLimitLayer: Layer<S>    where S: Service<R: Metered, Response = R::Response>
//! ```
//!
//! Before a call, the layer takes one request and an estimate of the tokens: those of the prompt,
//! and the request's `max_tokens` or a [reservation](RateLimitLayer::reservation). At its end it
//! corrects the estimate:
//!
//! | the call | counts |
//! |---|---|
//! | has a response | one request, and the tokens that the response reports; if it reports none, the estimate |
//! | fails | one request |
//! | is dropped, cancelled or stopped by a time limit | one request, the estimate of the prompt, and the output that was received |
//! | is interrupted or ends the run | nothing |
//! | is dropped while it waits | nothing |
//!
//! A streamed call is one call, and counts until its end. Every attempt that passes the layer
//! counts.
//!
//! No period has more than the limit: a small [share](RateLimitLayer::burst) may be used at once,
//! and the rest comes back evenly. A call that is larger than that share or uses more than its
//! estimate may exceed a limit; the next call then waits until that is paid back.
//!
//! # Limits that a provider reports
//!
//! The layer reads the headers of every answer, streamed or not, and of every error: how many
//! requests and tokens are left, and when they come back. Those of OpenAI (`6m0s`), Anthropic
//! (dates) and services that speak their protocols are known. Calls therefore also wait for other
//! programs that use the same key. After a refusal with a
//! [`retry_after`](tower_agent::Error::retry_after), no call is made before that time.
//!
//! A provider may be wrong. Its word keeps calls away for an hour at most, then one asks again; an
//! answer that states more than 100 million tokens counts as it was reserved; and what a call used
//! beyond its estimate closes a limit for its period, or for an hour if that is longer. A warning
//! says so.
//!
//! ```
//! use std::time::Duration;
//!
//! use tower_agent::{Agent, BoxError, Usage};
//! use tower_agent_middleware::rate_limit::{Exhausted, RateLimitLayer, LimitedResource};
//! use tower_agent_test::{ScriptedModel, Turn};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), BoxError> {
//! let model = ScriptedModel::always(Turn::from_text("Fine.").usage(Usage::new(90, 10)));
//! let limit = RateLimitLayer::new()
//!     .tokens(1_000, Duration::from_secs(60))
//!     .reservation(100)
//!     .max_wait(Duration::ZERO);
//! let agent = Agent::builder(model).model_layer(limit).build()?;
//!
//! agent.run("How are you?").await?;
//! let error = agent.run("And now?").await.unwrap_err();
//! let exhausted = error.downcast_ref::<Exhausted>().ok_or("typed")?;
//! assert_eq!(exhausted.resource, LimitedResource::Tokens);
//! assert_eq!(error.retry_after(), Some(exhausted.retry_after));
//! # Ok(())
//! # }
//! ```
//!
//! # Where to layer it
//!
//! Around each model, inside the [retry](crate::retry), since a provider counts attempts, and
//! outside the [time limit](crate::timeout), which must not count the wait. To give each customer a
//! limit and all of them a fair share of the provider's, use two layers:
//!
//! ```
//! use std::time::Duration;
//!
//! use tower::ServiceBuilder;
//! use tower_agent::model::ModelService;
//! use tower_agent::{Result, RunContext};
//! use tower_agent_middleware::rate_limit::RateLimitLayer;
//!
//! struct Customer(String);
//!
//! fn customer(run: &RunContext) -> Result<String> {
//!     Ok(run.extension::<Customer>()?.0.clone())
//! }
//!
//! fn limited(model: impl ModelService) -> impl ModelService {
//!     let minute = Duration::from_secs(60);
//!     ServiceBuilder::new()
//!         .layer(RateLimitLayer::new().tokens(50_000, minute).by(customer))
//!         .layer(RateLimitLayer::new().tokens(200_000, minute).fair_by(customer))
//!         .service(model)
//! }
//! # let model = |_| async { Ok::<_, tower_agent::BoxError>(tower_agent::ModelResponse::from_text("")) };
//! # drop(limited(tower::service_fn(model)));
//! ```
//!
//! # Limits that processes share
//!
//! By default a limit is in memory, and each process has one of its own. With a [`RateStore`] they
//! share it: `layer.shared_in(database.clone(), "openai")`, where `database` is a
//! [`Postgres`](https://docs.rs/tower-agent-durable/latest/tower_agent_durable/struct.Postgres.html)
//! of `tower-agent-durable`, with its feature `rate-limit`.
//!
//! | | |
//! |---|---|
//! | shared | what is used of each limit, what a provider has reported, and the time until which it accepts no calls |
//! | of each process | the [turns](RateLimitLayer::fair_by) of those that wait: of each process one call at a time asks for a limit, so that processes in which calls wait get about as many of them through |
//! | the store fails | the call fails and is not made |
//! | a process dies | its calls count as they were reserved |
//!
//! The service inside is polled ready before the wait, so a concurrency limit inside is held by
//! calls that wait: put it outside.

mod bucket;
mod exhausted;
mod headers;
mod layer;
mod limiter;
mod metered;
mod queue;
mod service;
mod state;
mod store;

pub use self::exhausted::{Exhausted, LimitedResource};
pub use self::layer::RateLimitLayer;
pub use self::metered::Metered;
pub use self::service::RateLimit;
pub use self::state::{RateChange, RateState};
pub use self::store::RateStore;

/// Futures of the layer in this module.
pub mod future {
    pub use super::service::ResponseFuture;
}
