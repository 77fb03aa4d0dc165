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

/// Returns the instructions for an answer that matches a schema, for a model to read.
#[cfg(any(feature = "anthropic", feature = "gemini", feature = "openai"))]
pub(crate) fn described(schema: &Value) -> String {
    ResponseFormat::instructions(schema)
}
