use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::protocol::{CallIdFormat, provider_fields};
use tower_agent::message::ProviderData;

/// The key of this provider's data.
pub(super) const PROVIDER: &str = "openai";

/// The field of reasoning that only some servers send, and take back.
pub(super) const REASONING_DETAILS: &str = "reasoning_details";

/// The mark of reasoning that came in this field, and goes back in it. Without details, reasoning
/// that came in `reasoning_content` has none. It is not sent.
pub(super) const FIELD: &str = "reasoning_field";

/// The facts about a response in the data of its message. They are not sent back.
pub(super) const ABOUT: &str = "response";

/// The field in which a server sent reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceivedField {
    ReasoningContent,
    Reasoning,
    /// As from GitHub Copilot.
    ReasoningText,
}

impl ReceivedField {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ReasoningContent => "reasoning_content",
            Self::Reasoning => "reasoning",
            Self::ReasoningText => "reasoning_text",
        }
    }
}

/// The fields of a message that only the server which sent them can read, apart from those of
/// reasoning: gateways have them. They go back to it as they came.
pub(super) const OPAQUE: [&str; 5] = [
    "encrypted_content",
    "extra_content",
    "reasoning_opaque",
    "reasoning_signature",
    "thinking_blocks",
];

/// Returns the data of what came from a server of this protocol: a mark, and the details of
/// reasoning.
pub(super) fn own(details: Option<Value>, field: Option<ReceivedField>) -> ProviderData {
    // One for all reasoning without details, which is most.
    static MARK: LazyLock<ProviderData> = LazyLock::new(|| data(json!({})));
    static IN_REASONING: LazyLock<ProviderData> =
        LazyLock::new(|| data(json!({ FIELD: "reasoning" })));
    let Some(details) = details else {
        return match field {
            None | Some(ReceivedField::ReasoningContent) => MARK.clone(),
            Some(ReceivedField::Reasoning) => IN_REASONING.clone(),
            Some(other) => data(json!({ FIELD: other.name() })),
        };
    };
    let mut fields = json!({ REASONING_DETAILS: details });
    if let Some(field) = field {
        fields[FIELD] = field.name().into();
    }
    data(fields)
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
