//! Agents: the loop, teams, and the builders for both.
//!
//! ```text
//! Agent: Service<AgentRequest>
//! ```
//!
//! An agent is either the loop around one model or a team of agents; both have the same type, and
//! callbacks and layers around the whole.
//!
//! The loop calls the model, runs the tools that it calls, adds their results to the conversation,
//! and repeats this until the model calls no tool. The next step is a pure function of the
//! transcript; all side effects are model or tool calls, each through its own stack of callbacks
//! and layers.
//!
//! # Composing agents
//!
//! | | continues with | created by |
//! |---|---|---|
//! | a team | its members, according to a plan | [`Agent::sequential`], [`Agent::parallel`], [`Agent::for_each`], [`Agent::repeat`] |
//! | an agent used as a tool | the caller, after the tool result | [`Agent::into_tool`] |
//! | a transfer | the sub-agent that the model chose | [`AgentBuilder::sub_agent`] |
//!
//! All of them share one run: one id, one state, one token, and usage that counts for every agent
//! on the path.

#[expect(clippy::module_inception, reason = "a type is in the file of its name")]
mod agent;
mod answer_calls;
mod answering;
mod as_tool;
mod build_error;
mod builder;
mod explain;
mod loop_config;
mod loop_state;
mod named_tools;
mod outline;
mod progress;
mod shell;
mod stream;
mod team;
mod team_response;
mod tool_messages;
mod tools;
mod transfer;
mod typed;
mod view;
mod waiting;
mod warnings;

pub use self::agent::Agent;
pub use self::build_error::BuildError;
pub use self::builder::AgentBuilder;
pub use self::explain::{Explained, Explanation, Target, Wrapper};
pub use self::progress::LoopProgress;
pub use self::stream::RunStream;
pub use self::team::TeamBuilder;
pub use self::tool_messages::{IntoToolMessages, ToolAnswer, ToolMessages};
pub use self::typed::TypedStream;
pub use self::warnings::OrderWarning;
pub use crate::callback::AtNoAnswer;
pub use crate::run::*;

/// Futures of the services in this module.
pub mod future {
    pub use super::agent::ResponseFuture;
    pub use super::typed::TypedFuture;
}
