//! Calls another model when one has failed.
//!
//! ```text
//! Fallback: Service<ModelRequest>
//! ```
//!
//! A fallback is itself a model. Put it where an agent's model goes: callbacks and layers of the
//! agent then wrap all of its models, and tokens are counted whichever model responded. Wrap a
//! single model in what is meant for that model alone: a retry, a timeout, or a
//! [`before_model`](tower_agent::callback::before_model) that adapts its requests.
//!
//! Each model receives the original request. All but the first receive it without its
//! [`model`](tower_agent::Settings::model) and [`extra`](tower_agent::Settings::extra) settings,
//! which are meant for the first; each of the others uses its own model. Provider data in the
//! messages is kept, and each model is sent its own alone: the clients of providers leave out what
//! has another [issuer](tower_agent::message::ProviderData::issuer), also where two of them speak
//! one protocol.
//!
//! The next model is called after an error of a [retryable](tower_agent::ErrorKind::is_retryable)
//! kind (whether or not retrying the same model would have helped; panics included), and when the
//! conversation is too long for the model. It is also called where the agent does not accept a
//! response that is [no answer](tower_agent::ModelResponse::no_answer), by its
//! [`AtNoAnswer`](tower_agent::agent::AtNoAnswer): cut off, filtered, refused or empty. The agent
//! gets the last such response, and asks again or fails. [`fall_back_if`](Fallback::fall_back_if)
//! replaces this rule. There is no fallback after an abort, an interrupt or an end of the
//! invocation, and none after output was streamed unless
//! [`restart_streams`](Fallback::restart_streams) is set; the stream then emits
//! [`AttemptDiscarded`](tower_agent::stream::EventKind::AttemptDiscarded).
//!
//! ```
//! use tower_agent_middleware::fallback::{Fallback, ModelsFailed};
//! use tower_agent::{Agent, BoxError, Error, ErrorKind};
//! use tower_agent::callback::before_model;
//! use tower_agent_test::{ScriptedModel, Turn};
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
//! assert_eq!(error.message(), "2 models failed: 1. overloaded: busy; 2. connection failed: no route");
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
