//! Converts a server's declarations of its tools.

use serde_json::{Map, Value};
use tower_agent::Effect;
use tower_agent::tool::ToolDeclaration;

/// Converts a declaration, with the server's own name. Returns the reason if an agent cannot offer
/// the tool.
pub(super) fn declaration(tool: &rmcp::model::Tool) -> Result<ToolDeclaration, &'static str> {
    let description = match (&tool.description, &tool.title) {
        (Some(description), _) => description.to_string(),
        (None, title) => title.clone().unwrap_or_default(),
    };
    let declared = ToolDeclaration::new(&*tool.name, description);
    Ok(declared
        .with_parameters(parameters(&tool.input_schema)?)
        .with_effect(effect(tool)))
}

/// The schema as it is. A schema without a type is that of an object, since arguments are one.
fn parameters(schema: &Map<String, Value>) -> Result<Value, &'static str> {
    let mut schema = schema.clone();
    match schema.entry("type").or_insert_with(|| "object".into()) {
        Value::String(kind) if kind == "object" => Ok(Value::Object(schema)),
        _ => Err("its parameters are not an object"),
    }
}

fn effect(tool: &rmcp::model::Tool) -> Effect {
    let Some(hints) = &tool.annotations else {
        return Effect::Mutating;
    };
    match (hints.read_only_hint, hints.idempotent_hint) {
        (Some(true), _) => Effect::Pure,
        (_, Some(true)) => Effect::Idempotent,
        _ => Effect::Mutating,
    }
}

/// Returns the name for the model: with the prefix, and without what providers reject.
pub(super) fn name(prefix: &str, name: &str) -> Result<String, &'static str> {
    let is_taken = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let whole = prefix.chars().chain(name.chars());
    let whole: String = whole.map(|c| if is_taken(c) { c } else { '_' }).collect();
    match whole.len() {
        1..=64 => Ok(whole),
        _ => Err("its name with the prefix is empty or longer than 64 characters"),
    }
}
