mod content;
mod decoder;
mod media;
mod message;
mod protocol;
mod provider;
mod request;
mod response;
mod tool_calls;
mod usage;

pub use self::decoder::ChatDecoder;
pub use self::protocol::Chat;
