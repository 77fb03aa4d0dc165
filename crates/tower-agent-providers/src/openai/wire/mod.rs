//! The protocol's JSON.

mod json;
mod lenient;
mod media;
mod message;
mod request;
mod response;

pub(super) use self::request::body;
pub(super) use self::response::{Answer, Said, ToolCallPiece};
