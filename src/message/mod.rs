//! Messages, made of parts, and lists of messages.

mod arguments;
mod body;
mod call_ids;
mod characters;
mod finish_reason;
mod media_source;
#[expect(clippy::module_inception, reason = "a type is in the file of its name")]
mod message;
mod message_id;
mod messages;
mod part;
mod provider_data;
mod role;
mod tool_call;
mod usage;

pub use self::arguments::Arguments;
pub use self::call_ids::CallIds;
pub use self::characters::whole_characters;
pub use self::finish_reason::{FinishReason, NoAnswer};
pub use self::media_source::MediaSource;
pub use self::message::Message;
pub(crate) use self::message_id::push_number;
pub use self::message_id::{IdPart, MessageId, MessagePlace};
pub use self::messages::{Iter, Messages};
pub use self::part::{Media, Part, Reasoning, Text, ToolResult};
pub use self::provider_data::ProviderData;
pub use self::role::Role;
pub use self::tool_call::ToolCall;
pub use self::usage::Usage;
pub use crate::metadata::Metadata;
