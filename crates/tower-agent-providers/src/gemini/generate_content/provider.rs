use serde_json::{Map, Value};

use crate::protocol::provider_fields;
use tower_agent::message::ProviderData;

/// The key of this provider's data.
pub(super) const PROVIDER: &str = "gemini";

/// Identifies the format in which messages and tools are cached.
pub(super) const PROTOCOL: &str = "tower_agent_providers.gemini.generate_content";

/// The same for models that require signatures.
pub(super) const SIGNED_PROTOCOL: &str = "tower_agent_providers.gemini.generate_content.signed";

/// Returns the data added by this provider.
pub(super) fn added(data: &ProviderData) -> Option<&Map<String, Value>> {
    provider_fields(data, PROVIDER)
}
