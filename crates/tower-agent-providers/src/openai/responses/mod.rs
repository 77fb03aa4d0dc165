mod content;
mod decoder;
mod input;
mod item;
mod protocol;
mod request;
mod response;
mod strict;
mod tools;

use serde_json::{Map, Value};

pub use self::decoder::ResponsesDecoder;
pub use self::protocol::Responses;
use crate::protocol::{CallIdFormat, provider_fields};
use tower_agent::message::ProviderData;

/// The key of this protocol's data: chat completions cannot send it.
const PROVIDER: &str = "openai_responses";

/// Identifies the format in which messages and tools are cached.
const PROTOCOL: &str = "tower_agent_providers.openai.responses";

/// The ids of calls.
const CALL_IDS: CallIdFormat = CallIdFormat { provider: PROVIDER, field: "call_id", max: 64 };

/// Returns the data added by this protocol.
fn added(data: &ProviderData) -> Option<&Map<String, Value>> {
    provider_fields(data, PROVIDER)
}
