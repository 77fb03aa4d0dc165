//! Asks another model when one has failed.
//!
//! ```text
//! Fallback<S>: Service<ModelRequest>    where S: ModelService
//! ```
//!
//! A fallback is a model: it stands where an agent's model stands, so that what is registered on
//! the agent stands around all of its models, and tokens are counted whichever has answered. What
//! is meant for one model alone is layered on that one: a retry, a timeout, and with
//! [`before_model`](crate::callback::before_model) whatever its requests need.
//!
//! Each model gets the request as it came. To the others than the first goes no
//! [`model`](crate::Settings::model) and no [`extra`](crate::Settings::extra) setting, which are
//! the first one's own; each chooses its own model. What a provider has left in the messages stays
//! where it is: it is kept by provider, and no other reads it.
//!
//! The next model is asked after an error of a [retryable](crate::ErrorKind::is_retryable) kind,
//! a panic of the model among them,
//! whether or not a retry of the same model would have helped, and when the conversation was too
//! long; [`fall_back_if`](Fallback::fall_back_if) says otherwise. Never after an ending, and not
//! once something of the answer has been seen, unless
//! [`restart_streams`](Fallback::restart_streams) says so; the stream then announces by itself
//! that what was seen is void.
//!
//! ```
//! use tower_agent::middleware::fallback::{Fallback, ModelsFailed};
//! use tower_agent::testing::{ScriptedModel, Turn};
//! use tower_agent::{Agent, BoxError, Error, ErrorKind};
//! use tower_agent::callback::before_model;
//! use tower_layer::Layer;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let busy = Error::new(ErrorKind::Overloaded, "busy");
//! let large = ScriptedModel::new([Turn::error(busy.clone()), Turn::error(busy)]);
//! let down = Error::new(ErrorKind::Connection, "no route");
//! let small = ScriptedModel::new([Turn::from_text("hi"), Turn::error(down)]);
//!
//! let brief = before_model(|request| request.settings_mut().max_tokens = Some(500));
//! let agent = Agent::builder(Fallback::new(large).or(brief.layer(small))).build()?;
//! assert_eq!(agent.run("hello").await?.text(), "hi");
//!
//! let error = agent.run("hello").await.unwrap_err();
//! assert_eq!(error.message(), "2 models failed: 1. overloaded: busy; 2. no connection: no route");
//! assert_eq!(error.downcast_ref::<ModelsFailed>().unwrap().errors().len(), 2);
//! # Ok(())
//! # }
//! ```

mod service;

pub use self::service::{Fallback, ModelsFailed};

/// Futures of the service in this module.
pub mod future {
    pub use super::service::ResponseFuture;
}
