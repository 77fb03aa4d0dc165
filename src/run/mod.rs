//! The agent call: its request, its response and the service alias.
//!
//! ```text
//! AgentRequest  ->  Result<AgentResponse, Error>
//! ```
//!
//! An agent is any [`AgentService`]: the loop of model and tool calls, a team of agents, a remote
//! server.

mod answer_format;
mod guards;
mod neighbours;
mod open_calls;
mod request;
mod response;
mod saved_request;
mod seen;
mod service;
mod typed_response;

pub use self::answer_format::{AnswerFormat, AnswerMode, InvalidAnswer};
pub(crate) use self::guards::Guards;
pub(crate) use self::neighbours::{Neighbours, TransferTarget};
pub use self::request::AgentRequest;
pub use self::response::AgentResponse;
pub use self::saved_request::SavedRequest;
pub(crate) use self::seen::{SeenAgentRequest, SeenAgentResponse};
pub use self::service::{AgentService, BoxAgent};
pub use self::typed_response::TypedResponse;
pub use crate::conversation::{Checkpoint, CheckpointHead};
pub use crate::stream::EndReason;
