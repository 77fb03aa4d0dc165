mod block;
mod conversation;
mod decoder;
mod media;
mod operations;
mod plain_text;
mod protocol;
mod provider;
mod request;
mod response;

pub use self::decoder::ConverseDecoder;
pub use self::protocol::Converse;
