use serde_json::{Map, Value};

use crate::protocol::{CallIdFormat, provider_fields};
use tower_agent::message::ProviderData;

/// The key of this protocol's data: chat completions cannot send it.
pub(super) const PROVIDER: &str = "openai_responses";

/// Identifies the format in which messages and tools are cached.
pub(super) const PROTOCOL: &str = "tower_agent_providers.openai.responses";

/// The ids of calls.
pub(super) const CALL_IDS: CallIdFormat = CallIdFormat {
    provider: PROVIDER,
    field: "call_id",
    max: 64,
};

/// Returns the data added by this protocol.
pub(super) fn added(data: &ProviderData) -> Option<&Map<String, Value>> {
    provider_fields(data, PROVIDER)
}
