//! Converts a server's declarations of its tools.

use serde_json::{Map, Value};
use tower_agent::Effect;
use tower_agent::tool::ToolDeclaration;

/// The mark in the `_meta` of a tool that runs only as a task of protocol version 2025-11-25, which
/// the transport sets.
pub(super) const ONLY_AS_TASK: &str = "tower-agent/only-as-task";

/// Converts a declaration, with the server's own name. Returns the reason if an agent cannot offer
/// the tool.
pub(super) fn declaration(tool: &rmcp::model::Tool) -> Result<ToolDeclaration, &'static str> {
    let meta = tool.meta.as_ref();
    if meta.is_some_and(|meta| meta.contains_key(ONLY_AS_TASK)) {
        return Err("it runs only as a task of protocol version 2025-11-25");
    }
    let description = match &tool.description {
        Some(description) => description.to_string(),
        // A title is better than nothing for a model that has to choose.
        None => tool.title.clone().unwrap_or_default(),
    };
    let parameters = parameters(&tool.input_schema)?;
    Ok(ToolDeclaration::new(&*tool.name, description)
        .with_parameters(parameters)
        .with_effect(annotated_effect(tool)))
}

/// Returns the schema, unchanged but for its type: one without a type is that of an object, since
/// arguments are an object.
fn parameters(schema: &Map<String, Value>) -> Result<Value, &'static str> {
    let mut schema = schema.clone();
    match schema.entry("type").or_insert_with(|| "object".into()) {
        Value::String(kind) if kind == "object" => Ok(Value::Object(schema)),
        _ => Err("its parameters are not an object"),
    }
}

/// Returns the effect that the server's hints declare.
fn annotated_effect(tool: &rmcp::model::Tool) -> Effect {
    let Some(hints) = &tool.annotations else {
        return Effect::Mutating;
    };
    // A tool that changes nothing can be repeated, whatever the second hint says.
    if hints.read_only_hint == Some(true) {
        Effect::Pure
    } else if hints.idempotent_hint == Some(true) {
        Effect::Idempotent
    } else {
        Effect::Mutating
    }
}

/// Returns the name for the model: the prefix and the server's name, with `_` for characters that
/// providers reject.
pub(super) fn name(prefix: &str, name: &str) -> Result<String, &'static str> {
    let mut model_name = String::with_capacity(prefix.len() + name.len());
    for character in prefix.chars().chain(name.chars()) {
        let is_accepted = character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
        model_name.push(if is_accepted { character } else { '_' });
    }
    // OpenAI allows 64 characters. A shortened name could be that of another tool.
    match model_name.len() {
        1..=64 => Ok(model_name),
        _ => Err("its name with the prefix is empty or longer than 64 characters"),
    }
}
