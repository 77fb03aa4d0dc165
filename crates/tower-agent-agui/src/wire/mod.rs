//! The types that travel: [`Event`] to the front end, [`RunAgentInput`] from it.
//!
//! Optional fields are left out where there is nothing to say; the protocol forbids `null` there.
//! What is read may carry properties that are not known here; they are ignored.

mod content;
mod event;
mod events;
mod input;
mod kind;
mod message;
mod run;
mod skip;

pub use self::content::{Content, ContentPart, MediaPart, PartSource, TextPart};
pub use self::event::Event;
pub use self::input::{
    Context, InputError, InputErrorKind, ResumeEntry, ResumeStatus, RunAgentInput, Tool,
};
pub use self::kind::{EncryptedEntity, EventKind, ReasoningRole, TextRole};
pub use self::message::{FunctionCall, Message, MessageKind, ToolCall};
pub use self::run::{
    Interrupt, RunError, RunFinished, RunOutcome, RunStarted, SubagentOutcome, SubagentStarted,
    TokenUsage,
};
/// A JSON Patch (RFC 6902).
pub use json_patch::{Patch, PatchOperation};

/// The version of the protocol that is spoken here.
pub const PROTOCOL_VERSION: &str = "1.0";
