use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::protocol::{CallIdFormat, provider_fields};
use tower_agent::message::ProviderData;

/// The key of this provider's data.
pub(super) const PROVIDER: &str = "openai";

/// The data of reasoning that came from a server of this protocol: nothing but the mark. One for all,
/// as most servers send no other data with it.
pub(super) static OWN: LazyLock<ProviderData> = LazyLock::new(|| {
    let mut data = ProviderData::default();
    data.set(PROVIDER, json!({}));
    data
});

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
