mod block;
mod cache;
mod conversation;
mod data;
mod decoder;
mod media;
mod operations;
mod protocol;
mod provider;
mod request;
mod response;
mod schema;
mod served_by;
mod thinking;

pub(crate) use self::operations::COUNTED;
pub use self::protocol::{Messages, MessagesDecoder};
#[cfg(feature = "bedrock")]
pub(crate) use self::schema::{describes, guaranteed};
pub(crate) use self::served_by::ServedBy;
pub use self::thinking::Thinking;
