mod content;
mod decoder;
mod details;
mod dialect;
mod dialects;
mod media;
mod message;
mod protocol;
mod provider;
mod rejected_call;
mod request;
mod response;
mod tool_calls;
mod usage;

pub use self::decoder::ChatDecoder;
pub use self::dialect::{Dialect, LimitField, ReasoningField, SchemaSupport};
pub use self::dialects::Dialects;
pub use self::protocol::Chat;
