use serde_json::{Map, Value};

use crate::protocol::provider_fields;
use tower_agent::message::ProviderData;

/// The key of this protocol's data: `generateContent` cannot send it.
pub(super) const PROVIDER: &str = "gemini_interactions";

/// Identifies the format in which messages and tools are cached.
pub(super) const PROTOCOL: &str = "tower_agent_providers.gemini.interactions";

/// The same for models that require signatures.
pub(super) const SIGNED_PROTOCOL: &str = "tower_agent_providers.gemini.interactions.signed";

/// Returns the data added by this protocol.
pub(super) fn added(data: &ProviderData) -> Option<&Map<String, Value>> {
    provider_fields(data, PROVIDER)
}
