mod content;
mod decoder;
mod input;
mod protocol;
mod request;
mod response;
mod settings;
mod step;

use serde_json::{Map, Value};

pub use self::decoder::InteractionsDecoder;
pub use self::protocol::Interactions;
use crate::protocol::provider_fields;
use tower_agent::message::ProviderData;

/// The key of this protocol's data: `generateContent` cannot send it.
const PROVIDER: &str = "gemini_interactions";

/// Identifies the format in which messages and tools are cached.
const PROTOCOL: &str = "tower_agent_providers.gemini.interactions";

/// The same for models that require signatures.
const SIGNED_PROTOCOL: &str = "tower_agent_providers.gemini.interactions.signed";

/// Returns the data added by this protocol.
fn added(data: &ProviderData) -> Option<&Map<String, Value>> {
    provider_fields(data, PROVIDER)
}
