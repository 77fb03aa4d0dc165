//! The model call: its request, its response and the service alias.
//!
//! ```text
//! ModelRequest  ->  Result<ModelResponse, Error>
//! ```
//!
//! A model is any [`ModelService`]: a provider, a script, a [`service_fn`](tower::service_fn).

mod prompt_cache;
mod request;
mod response;
mod seen;
mod server_tool;
mod service;
mod settings;
mod target;
mod written;

pub use self::prompt_cache::{CacheRetention, PromptCache};
pub use self::request::ModelRequest;
pub use self::response::ModelResponse;
pub(crate) use self::seen::{
    SeenModelRequest, SeenModelResponse, changed_settings, changed_tools, changed_words,
    texts_of_messages,
};
pub use self::server_tool::{ServerTool, ServerToolKind};
pub use self::service::{BoxModel, ModelService};
pub(crate) use self::settings::format_name;
pub use self::settings::{ReasoningEffort, ResponseFormat, Settings, ToolChoice};
pub use self::target::ModelTarget;
pub(crate) use self::written::Written;
pub use crate::message::FinishReason;
