mod content;
mod decoder;
mod input;
mod item;
mod protocol;
mod provider;
mod request;
mod response;
mod strict;
mod tools;

pub use self::decoder::ResponsesDecoder;
pub use self::protocol::Responses;
