//! The agent call.
//!
//! ```text
//! AgentRequest  ->  Result<AgentResponse, Error>
//! ```
//!
//! An agent is any [`AgentService`]: the loop of model and tool calls, several agents in turn, a
//! server far away.

mod request;
mod response;
mod service;

pub use self::request::AgentRequest;
pub use self::response::{AgentResponse, EndReason};
pub use self::service::{AgentService, BoxAgent};
pub use crate::context::Checkpoint;
