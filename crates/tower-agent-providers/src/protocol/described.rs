use serde_json::Value;

use super::call::Call;
use tower_agent::model::ResponseFormat;

/// Returns the schema that the answer of a call is to match.
pub(crate) fn schema_of<'a>(call: &Call<'a>) -> Option<&'a Value> {
    match &call.request().settings().response_format {
        Some(ResponseFormat::JsonSchema { schema, .. }) => Some(schema),
        _ => None,
    }
}

/// The formats that are accepted where a schema is guaranteed, by any provider that guarantees one.
#[cfg(any(feature = "anthropic", feature = "openai"))]
pub(crate) const GUARANTEED_FORMATS: [&str; 9] = [
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "time",
    "uuid",
];

/// Returns the instructions for an answer that matches a schema, for a model to read.
#[cfg(any(feature = "anthropic", feature = "gemini", feature = "openai"))]
pub(crate) fn described(schema: &Value) -> String {
    ResponseFormat::instructions(schema)
}
