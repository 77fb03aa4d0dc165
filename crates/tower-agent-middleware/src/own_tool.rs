//! Tools of this crate, for models.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tower::service_fn;
use tower_agent::error::Error;
use tower_agent::tool::{Effect, Tool, ToolDeclaration, ToolRequest, ToolResponse};

/// Returns the schema of an object with these properties and no others, all of them required.
pub(crate) fn object(properties: Value) -> Value {
    let required = properties.as_object().into_iter().flatten();
    let required: Vec<_> = required.map(|(name, _)| name).collect();
    json!({
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": false,
    })
}

/// Declares a tool with these parameters. It is pure: it may be called again, side by side, and
/// without an approval.
pub(crate) fn declaration(
    name: &'static str,
    description: impl Into<String>,
    properties: Value,
) -> ToolDeclaration {
    ToolDeclaration::new(name, description)
        .with_parameters(object(properties))
        .with_effect(Effect::Pure)
        .part_of_loop()
}

/// Returns a tool that answers at once. The model reads why its arguments are wrong.
pub(crate) fn own_tool<A: DeserializeOwned>(
    declaration: ToolDeclaration,
    answer: impl Fn(A, &ToolRequest) -> ToolResponse + Clone + Send + Sync + 'static,
) -> Tool {
    let answer = move |request: ToolRequest| {
        let answer = match A::deserialize(request.arguments()) {
            Ok(arguments) => answer(arguments, &request),
            Err(error) => ToolResponse::error(error.to_string()),
        };
        async move { Ok::<_, Error>(answer) }
    };
    Tool::service(declaration, service_fn(answer))
}
