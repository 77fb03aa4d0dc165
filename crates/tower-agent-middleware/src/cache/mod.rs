//! Replays responses to equal calls, and makes equal calls at the same time once.
//!
//! ```text
//! CacheLayer<R>: Layer<S>    where S: Service<R: Cacheable, Response = R::Response>
//! ```
//!
//! Two calls are equal if they have the same tenant, instructions, messages (whatever their ids),
//! tools and settings; for a tool, the same tenant, name and arguments.
//!
//! | a call | is answered by |
//! |---|---|
//! | that is the first of its kind | the service inside |
//! | that comes while an equal one runs | that one: its deltas so far at once, and the others as they come |
//! | that comes later | the stored response, streamed as one attempt |
//! | of a tool that is not [pure](tower_agent::Effect::Pure) | the service inside, always |
//!
//! A call that several follow goes on as long as one of them does: whoever began it may be dropped.
//! It is driven by all of them, so that a slow consumer holds nobody else up, and needs no task.
//!
//! A replay has the origin [`Replay`](tower_agent::call::Origin::Replay), no usage, no cost, and an
//! id of its own; a [budget](crate::budget) charges nothing for it, and one outside must have room
//! for it. One of those who follow a call pays for it and has its usage: whoever began it, or
//! somebody else if that one was dropped.
//!
//! Errors are not stored, nor are responses that were cut off or that a callback inside has given.
//! An error is that of everybody who follows the call, unless it is about the run of the one who
//! began it, such as a cancellation: the others then make a call of their own.
//!
//! ```
//! use tower_agent::{Agent, AgentRequest, BoxError, RunContext};
//! use tower_agent_middleware::cache::CacheLayer;
//! use tower_agent_test::{ScriptedModel, Turn};
//!
//! struct Customer(&'static str);
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let model = ScriptedModel::new(["It rains.", "It snows."].map(Turn::from_text));
//! let cache = CacheLayer::new(|run: &RunContext| Ok(run.extension::<Customer>()?.0.to_owned()));
//! let agent = Agent::builder(model).model_layer(cache).build()?;
//!
//! let ask = |customer| {
//!     let request = AgentRequest::new("How is the weather?");
//!     agent.run(request.with_extension(Customer(customer)))
//! };
//! assert_eq!(ask("ada").await?.text(), "It rains.");
//! assert_eq!(ask("ada").await?.text(), "It rains.");
//! assert_eq!(ask("grace").await?.text(), "It snows.");
//! # Ok(())
//! # }
//! ```
//!
//! # What belongs to one conversation
//!
//! A numbered [placeholder](crate::redact#numbered-placeholders), or a reference to a [hidden
//! result](crate::flow#hidden-results), means something in one conversation alone. What writes such
//! names [declares](tower_agent::context::DeclaredNames::declare) them, as a layer of your own can,
//! and then a call is equal to another only if the names in it mean the same:
//! `balance("[email-1]")` is another call for another person. A response with a name that is not in
//! its request is for whoever made the call. It is not stored, those who follow the call make one
//! of their own, and so they do if it fails with such a name.
//!
//! Since a name may come at the end, those who follow a call are streamed its response once it is
//! complete, if a part of the run has declared names.
//!
//! A tool that reads more of its conversation than its arguments, such as the session's state, is
//! not answered by them: do not declare it as pure.
//!
//! # Where to layer it
//!
//! Outside of everything that costs: the [retry](crate::retry), the [rate
//! limit](crate::rate_limit), the [time limit](crate::timeout). Guards belong outside: one inside
//! does not see a call that is replayed. A [redaction](crate::redact) hides and restores where it
//! must, wherever it is registered; [input](crate::redact::Redact::redact_input) that it hides
//! outside the cache lets more answers be of use to others. The calls inside belong to the run that
//! began them, with its data and its cancellation.

mod flight;
mod key;
mod layer;
mod log;
mod replay;
mod service;

pub use self::layer::CacheLayer;
pub use self::replay::Cacheable;
pub use self::service::Cache;

/// Futures of the layer in this module.
pub mod future {
    pub use super::service::ResponseFuture;
}
