//! x

mod boxed;
mod context;
mod error;
mod extensions;
mod function;
mod maybe_future;
mod panic;
mod request;

pub mod agent;
pub mod callback;
pub mod message;
pub mod model;
#[cfg(feature = "openai")]
pub mod provider;
pub mod stream;
pub mod tool;

pub use self::agent::{AgentRequest, AgentResponse, AgentService, BoxAgent, End};
pub use self::boxed::Boxed;
#[doc(inline)]
pub use self::callback::{
    Action, Callback, CallbackService, Callbacks, Next, Outcome, Recovery, after_agent,
    after_agent_async, after_model, after_model_async, after_tool, after_tool_async, before_agent,
    before_agent_async, before_model, before_model_async, before_tool, before_tool_async,
    on_agent_error, on_agent_error_async, on_model_error, on_model_error_async, on_tool_error,
    on_tool_error_async, wrap_agent, wrap_model, wrap_tool,
};
pub use self::context::{RunContext, State, StateDelta, ValueTypeError, Values};
pub use self::error::{BoxError, CallSite, Error, ErrorKind, Pending, RaisedBy, Result};
pub use self::extensions::Extensions;
#[doc(inline)]
pub use self::message::{
    Message, Messages, Metadata, Part, ProviderData, Role, ToolCall, ToolResult, Usage,
};
pub use self::model::{
    BoxModel, FinishReason, ModelRequest, ModelResponse, ModelService, ReasoningEffort,
    ResponseFormat, Settings, ToolChoice,
};
pub use self::request::{CallKind, Origin, Request};
pub use self::tool::{
    BoxTool, DuplicateTool, Effect, IntoToolResponse, InvalidArguments, Json, Tool,
    ToolDeclaration, ToolRequest, ToolResponse, ToolService, ToolSet,
};
