mod contents;
mod decoder;
mod model_name;
mod part;
mod protocol;
mod request;
mod response;
mod settings;

use serde_json::{Map, Value};

pub use self::decoder::GenerateContentDecoder;
pub use self::protocol::GenerateContent;
use crate::protocol::provider_fields;
use tower_agent::message::ProviderData;

/// The key of this provider's data.
const PROVIDER: &str = "gemini";

/// Identifies the format in which messages and tools are cached.
const PROTOCOL: &str = "tower_agent_providers.gemini.generate_content";

/// The same for models that require signatures.
const SIGNED_PROTOCOL: &str = "tower_agent_providers.gemini.generate_content.signed";

/// Returns the data added by this provider.
fn added(data: &ProviderData) -> Option<&Map<String, Value>> {
    provider_fields(data, PROVIDER)
}
