//! The most common imports: the types of the crate's root and the constructors of callbacks.
//!
//! ```
//! use tower_agent::prelude::*;
//!
//! # fn build(model: impl tower_agent::model::ModelService) -> Result<Agent, BoxError> {
//! let agent = Agent::builder(model)
//!     .on_model(before_model(|request| request.add_instructions("Be brief.")))
//!     .build()?;
//! # Ok(agent)
//! # }
//! ```

#[doc(no_inline)]
pub use crate::callback::{
    after_agent, after_agent_async, after_model, after_model_async, after_tool, after_tool_async,
    before_agent, before_agent_async, before_model, before_model_async, before_tool,
    before_tool_async, on_agent_error, on_agent_error_async, on_model_error, on_model_error_async,
    on_tool_error, on_tool_error_async, wrap_agent, wrap_model, wrap_tool,
};
#[doc(no_inline)]
pub use crate::{
    Action, Agent, AgentRequest, AgentResponse, BoxError, Callback, Callbacks, Effect, EndReason,
    Error, ErrorKind, Json, Message, ModelRequest, ModelResponse, Part, Recovery, Request, Result,
    Role, RunContext, RunStream, State, Tool, ToolRequest, ToolResponse, ToolSet, Usage,
};
