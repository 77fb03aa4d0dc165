//! The agent loop, and the builder that composes it.
//!
//! ```text
//! Agent: Service<AgentRequest>
//! ```
//!
//! An agent is the loop of one model, or a team of agents; both are the same handle, with the same
//! callbacks and layers around the whole.
//!
//! The loop asks the model, runs the tools it asks for, tells it their answers, and does so until
//! it asks for none. What to do next is a pure function of the transcript; what touches the world
//! is a model or a tool call, each through its own stack of callbacks and layers.
//!
//! # Agents made of agents
//!
//! | | who goes on | made by |
//! |---|---|---|
//! | a team | its members, by a plan | [`Agent::sequential`], [`Agent::parallel`], [`Agent::repeat`] |
//! | an agent as a tool | the caller, when the tool has answered | [`Agent::into_tool`] |
//! | a transfer | the sub-agent that the model chose | [`AgentBuilder::sub_agent`] |
//!
//! All of it is one run: one id, one state, one token, and usage that counts for every agent on
//! the path.

#[expect(clippy::module_inception, reason = "a type is in the file of its name")]
mod agent;
mod as_tool;
mod build_error;
mod builder;
mod explain;
mod lint;
mod loop_state;
mod meter;
mod named_tools;
pub(crate) mod options;
mod outline;
mod progress;
mod step;
mod stream;
mod team;
mod team_response;
mod tool_messages;
mod tools;
mod transfer;
mod waiting;
mod whole;

pub use self::agent::Agent;
pub use self::build_error::BuildError;
pub use self::builder::AgentBuilder;
pub use self::explain::Explanation;
pub use self::progress::Progress;
pub use self::stream::RunStream;
pub use self::team::TeamBuilder;
pub use self::tool_messages::{IntoToolMessages, ToolAnswer, ToolMessages};
pub use crate::run::*;

/// Futures of the services in this module.
pub mod future {
    pub use super::agent::ResponseFuture;
}
