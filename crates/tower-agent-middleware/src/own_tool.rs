//! Tools of this crate, for models.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tower::service_fn;
use tower_agent::error::Error;
use tower_agent::tool::{Effect, Tool, ToolDeclaration, ToolRequest, ToolResponse};

/// The name of the tool of a context window that shows what was left out.
pub(crate) const LOOK_BACK: &str = "look_back";

/// The name of the tool that declares tools to a model which were searched.
pub(crate) const LOAD_TOOLS: &str = "load_tools";

/// The name of the tool that searches them.
pub(crate) const SEARCH_TOOLS: &str = "search_tools";

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

pub(crate) fn look_back_declaration() -> ToolDeclaration {
    declaration(
        LOOK_BACK,
        "Shows an earlier message or result of a tool that was left out of the conversation to save space.",
        json!({
            "name": {
                "type": "string",
                "description": "The name of the message, such as `m3`, or of the result of a tool call in it, \
                                such as `m3.0`.",
            },
        }),
    )
}

pub(crate) fn search_declaration() -> ToolDeclaration {
    declaration(
        SEARCH_TOOLS,
        format!(
            "Searches for tools that you could use and that are not declared yet, and returns their names and \
             descriptions. Declare one with `{LOAD_TOOLS}` before you call it."
        ),
        json!({
            "query": { "type": "string", "description": "Words for what the tool should do." },
        }),
    )
}

pub(crate) fn load_declaration() -> ToolDeclaration {
    declaration(
        LOAD_TOOLS,
        format!("Declares tools that `{SEARCH_TOOLS}` has found, so that you can call them."),
        json!({
            "names": {
                "type": "array",
                "items": { "type": "string" },
                "description": "The names of the tools.",
            },
        }),
    )
    // It changes what is declared in this conversation: a cache must not answer for it.
    .with_effect(Effect::Idempotent)
}
