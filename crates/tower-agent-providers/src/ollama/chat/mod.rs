mod decoder;
mod fault;
mod host;
mod messages;
mod options;
mod protocol;
mod request;
mod response;

use serde_json::{Map, Value};

pub use self::decoder::ChatDecoder;
pub use self::protocol::Chat;
use crate::protocol::provider_fields;
use tower_agent::message::ProviderData;

/// The key of this provider's data.
const PROVIDER: &str = "ollama";

/// Identifies the format in which messages and tools are cached.
const PROTOCOL: &str = "tower_agent_providers.ollama.chat";

/// Returns the data added by this provider.
fn added(data: &ProviderData) -> Option<&Map<String, Value>> {
    provider_fields(data, PROVIDER)
}
