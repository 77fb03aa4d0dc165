//! `&[Message] -> Messages`, and back
//!
//! The front end's messages and ours: [`read()`] and [`write()`]; and [`Conversation`], the messages
//! as the front end has them while a run goes on.
//!
//! # What becomes what
//!
//! | the front end's | ours |
//! |---|---|
//! | developer, system | system |
//! | user: text; text parts and images in base64 or at an address | user, part by part |
//! | user or tool: other media, files of a provider | an error: a model call cannot carry them |
//! | assistant: text and tool calls | assistant: text, then the calls |
//! | reasoning | reasoning parts: of the assistant message before, if its name says so; else first in the next one, and left out if there is none before the next user message |
//! | tool | tool; `error`, or `isError` in its metadata, makes it a failure; `error` is its text if it has no other |
//! | activity | left out: no model reads it |
//! | any of an agent within the agent | left out: it is no part of this conversation |
//!
//! Back, parts that only a provider can read are left out, and pictures of the assistant, which
//! the protocol cannot carry. What a provider added to reasoning or to a call and must get back
//! travels as the `encryptedValue`.

mod client;
mod edit;
mod read;
mod write;

pub use self::client::Conversation;
pub use self::read::read;
pub(super) use self::read::{parts, tool_answer};
pub use self::write::write;
pub(super) use self::write::{content, encrypted, failure};

/// The key under which an `encryptedValue` that we did not write is kept.
const FOREIGN: &str = "agui";

/// The key of a tool message's metadata that says that the tool has failed.
const IS_ERROR: &str = "isError";
