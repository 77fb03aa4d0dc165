use serde_json::{Map, Value};

use crate::protocol::{CallIdFormat, provider_fields};
use tower_agent::message::ProviderData;

/// The key of this provider's data.
pub(super) const PROVIDER: &str = "anthropic";

/// Identifies the format in which messages and tools are cached.
pub(super) const PROTOCOL: &str = "tower_agent_providers.anthropic.messages";

/// The ids of calls. The provider itself has no limit for their length; Bedrock has this one.
pub(super) const CALL_IDS: CallIdFormat = CallIdFormat {
    provider: PROVIDER,
    field: "id",
    max: 64,
};

/// Returns the fields added by this provider.
pub(super) fn added(data: &ProviderData) -> Option<&Map<String, Value>> {
    provider_fields(data, PROVIDER)
}
