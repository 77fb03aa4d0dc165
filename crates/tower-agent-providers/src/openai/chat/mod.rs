mod decoder;
mod media;
mod message;
mod protocol;
mod provider;
mod request;
mod response;
mod tool_calls;

pub use self::decoder::ChatDecoder;
pub use self::protocol::Chat;
