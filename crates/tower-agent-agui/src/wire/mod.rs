//! The protocol's types: [`Event`] to the client, [`RunAgentInput`] from it.
//!
//! Empty optional fields are omitted, since the protocol forbids `null` there. Unknown properties
//! in the input are ignored.

mod content;
mod event;
mod events;
mod forwarded;
mod input;
mod kind;
mod message;
mod run;
mod skip;

pub use self::content::{Content, ContentPart, MediaPart, PartSource, TextPart};
pub use self::event::Event;
pub use self::forwarded::ForwardedProps;
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

/// The supported version of the protocol.
pub const PROTOCOL_VERSION: &str = "1.0";
