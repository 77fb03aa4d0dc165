use serde_json::{Map, Value};
use tower_agent::message::ProviderData;

/// Returns the fields of one provider's data, if it is an object that has any.
///
/// ```
/// use serde_json::json;
/// use tower_agent::message::ProviderData;
/// use tower_agent_providers::protocol::provider_fields;
///
/// let mut data = ProviderData::default();
/// data.set("anthropic", json!({ "signature": "EqQ" }));
/// assert_eq!(provider_fields(&data, "anthropic").unwrap()["signature"], "EqQ");
/// assert_eq!(provider_fields(&data, "openai"), None);
/// ```
#[must_use]
pub fn provider_fields<'a>(
    data: &'a ProviderData,
    provider: &str,
) -> Option<&'a Map<String, Value>> {
    data.get(provider)?
        .as_object()
        .filter(|fields| !fields.is_empty())
}
