mod block;
mod cache;
mod conversation;
mod data;
mod decoder;
mod media;
mod protocol;
mod provider;
mod request;
mod response;
mod schema;
mod thinking;

pub use self::protocol::{Messages, MessagesDecoder};
pub use self::thinking::Thinking;
