//! `&[Message] -> Messages`, and back
//!
//! Converts between the client's messages and ours: [`read()`] and [`write()`]. [`Conversation`]
//! tracks the messages that the client has during a run.
//!
//! # Mapping
//!
//! | client | agent |
//! |---|---|
//! | developer, system | system |
//! | user: text; text parts; images, audio and documents in base64 or at a URL | user, part by part; `filename` in a document's metadata is its name |
//! | user or tool: video | an error: a model call cannot contain it |
//! | user or tool: files of a provider | an error: the client must not choose among the files in the server's account |
//! | assistant: text and tool calls | assistant: text, then the calls |
//! | reasoning | reasoning parts of the preceding assistant message, if its id says so; otherwise at the start of the next one; dropped if there is none before the next user message |
//! | tool | tool; `error`, or `isError` in its metadata, makes it a failure; `error` is its text if it has no other |
//! | activity | dropped: no model reads it |
//! | any message of a subagent | dropped: it is not part of this conversation |
//!
//! In the other direction, parts specific to a provider and the assistant's images, audio and
//! documents are dropped, since the protocol cannot represent them. Provider data of reasoning or
//! of a call that must be sent back is stored in the `encryptedValue`.

mod client;
mod edit;
mod keys;
mod read;
mod write;

pub use self::client::Conversation;
pub use self::read::read;
pub(super) use self::read::{is_failed, parts, result_parts};
pub use self::write::write;
pub(super) use self::write::{content, content_by_part, encrypted, failure};
