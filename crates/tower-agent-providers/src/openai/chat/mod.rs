mod decoder;
mod media;
mod message;
mod protocol;
mod request;
mod response;
mod tool_calls;

pub use self::decoder::ChatDecoder;
pub use self::protocol::Chat;

/// The key of this provider's data.
const PROVIDER: &str = "openai";

/// Identifies the format in which messages and tools are cached.
const PROTOCOL: &str = "tower_agent_providers.openai.chat";
