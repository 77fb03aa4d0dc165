use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::protocol::{CallIdFormat, provider_fields};
use tower_agent::message::ProviderData;

/// The key of this provider's data.
pub(super) const PROVIDER: &str = "openai";

/// The field of reasoning that only some servers send, and take back.
pub(super) const REASONING_DETAILS: &str = "reasoning_details";

/// The facts about a response in the data of its message. They are not sent back.
pub(super) const ABOUT: &str = "response";

/// Returns the data of reasoning that came from a server of this protocol: a mark, and its details.
pub(super) fn own(details: Option<Value>) -> ProviderData {
    // One for all reasoning without details, which is most.
    static MARK: LazyLock<ProviderData> = LazyLock::new(|| data(json!({})));
    match details {
        None => MARK.clone(),
        Some(details) => data(json!({ REASONING_DETAILS: details })),
    }
}

fn data(fields: Value) -> ProviderData {
    let mut data = ProviderData::default();
    data.set(PROVIDER, fields);
    data
}

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
