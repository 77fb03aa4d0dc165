mod block;
mod cache;
mod conversation;
mod data;
mod decoder;
mod media;
mod protocol;
mod request;
mod response;
mod schema;
mod thinking;

pub use self::decoder::MessagesDecoder;
pub use self::protocol::Messages;
pub use self::thinking::Thinking;
use crate::protocol::CallIdFormat;

/// The key of this provider's data.
const PROVIDER: &str = "anthropic";

/// Identifies the format in which messages and tools are cached.
const PROTOCOL: &str = "tower_agent_providers.anthropic.messages";

/// The ids of calls. The provider itself has no limit for their length; Bedrock has this one.
const CALL_IDS: CallIdFormat = CallIdFormat { provider: PROVIDER, field: "id", max: 64 };
