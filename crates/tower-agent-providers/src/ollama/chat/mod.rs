mod decoder;
mod fault;
mod host;
mod messages;
mod options;
mod protocol;
mod provider;
mod request;
mod response;

pub use self::decoder::ChatDecoder;
pub use self::protocol::Chat;
