use serde_json::{Map, Value};

use crate::protocol::{CallIdFormat, provider_fields};
use tower_agent::message::ProviderData;

/// The key of this provider's data.
pub(super) const PROVIDER: &str = "openai";

/// The field of a message's data that only some servers take back.
pub(super) const REASONING_DETAILS: &str = "reasoning_details";

/// Identifies the format in which tools are cached.
pub(super) const PROTOCOL: &str = "tower_agent_providers.openai.chat";

/// The ids of calls. OpenAI has rejected longer ones, and servers behind it other characters.
pub(super) const CALL_IDS: CallIdFormat = CallIdFormat {
    provider: PROVIDER,
    field: "id",
    max: 40,
};

/// Returns the data added by this provider.
pub(super) fn added(data: &ProviderData) -> Option<&Map<String, Value>> {
    provider_fields(data, PROVIDER)
}
