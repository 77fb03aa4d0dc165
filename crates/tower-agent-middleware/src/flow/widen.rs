//! The parameters of tools as the model reads them while results may be hidden: each argument, and
//! each part of one, may be a reference. A provider that keeps the model to the schema would forbid
//! it otherwise.

use std::sync::{Arc, Mutex};

use serde_json::{Map, Value, json};
use tower_agent::model::{ModelRequest, ResponseFormat};
use tower_agent::tool::ToolDeclaration;

use super::meta::{ASK_ABOUT, SHOW, own_name};
use crate::lock::lock;

type Tools = Arc<Vec<Arc<ToolDeclaration>>>;

/// The lists of tools of a run, each with the one that the model reads in its place: always the
/// same, so that what a provider has cached of a request can be used for the next.
#[derive(Default)]
pub(super) struct Widened(Mutex<Vec<(Vec<Arc<ToolDeclaration>>, Tools)>>);

impl Widened {
    /// Replaces the tools of a request.
    pub(super) fn apply(&self, request: &mut ModelRequest) {
        let tools = self.of(request.tools());
        *request = std::mem::take(request).with_tools(tools);
    }

    fn of(&self, tools: &[Arc<ToolDeclaration>]) -> Tools {
        let mut known = lock(&self.0);
        let same = known.iter().find(|(earlier, _)| {
            let mut pairs = earlier.iter().zip(tools);
            earlier.len() == tools.len() && pairs.all(|(one, other)| Arc::ptr_eq(one, other))
        });
        if let Some((_, widened)) = same {
            return widened.clone();
        }
        let widened: Tools = Arc::new(tools.iter().map(widened).collect());
        known.push((tools.to_vec(), widened.clone()));
        widened
    }
}

fn widened(tool: &Arc<ToolDeclaration>) -> Arc<ToolDeclaration> {
    // The guard's own tools say where a reference goes, and the final answer is no call of a tool.
    let says_itself = matches!(own_name(tool), Some(SHOW | ASK_ABOUT));
    if says_itself || tool.name() == ResponseFormat::ANSWER_TOOL {
        return tool.clone();
    }
    let mut parameters = tool.parameters().clone();
    widen_inside(&mut parameters);
    Arc::new(ToolDeclaration::clone(tool).with_parameters(parameters))
}

/// Allows references inside the values of a schema, and not in their place: the arguments
/// themselves must stay an object.
fn widen_inside(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    for keyword in ["properties", "patternProperties"] {
        let schemas = schema.get_mut(keyword).and_then(Value::as_object_mut);
        schemas
            .into_iter()
            .flat_map(Map::values_mut)
            .for_each(widen);
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(inside) = schema.get_mut(keyword).filter(|inside| inside.is_object()) {
            widen(inside);
        }
    }
    let items = schema.get_mut("prefixItems").and_then(Value::as_array_mut);
    items.into_iter().flatten().for_each(widen);
    // Other schemas for the same value.
    for keyword in ["anyOf", "oneOf", "allOf"] {
        let schemas = schema.get_mut(keyword).and_then(Value::as_array_mut);
        schemas.into_iter().flatten().for_each(widen_inside);
    }
    for keyword in ["$defs", "definitions"] {
        let schemas = schema.get_mut(keyword).and_then(Value::as_object_mut);
        schemas
            .into_iter()
            .flat_map(Map::values_mut)
            .for_each(widen_inside);
    }
}

/// Allows a reference in place of the values of a schema, and inside them.
fn widen(schema: &mut Value) {
    widen_inside(schema);
    let value = schema.take();
    *schema = json!({ "anyOf": [value, reference()] });
}

/// Returns the schema of a reference.
fn reference() -> Value {
    json!({
        "type": "object",
        "properties": { "$ref": { "type": "string" } },
        "required": ["$ref"],
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_an_argument_may_be_a_reference() {
        let mut schema = json!({
            "type": "object",
            "properties": {
                "to": { "type": "array", "items": { "type": "string" } },
                "how": { "$ref": "#/$defs/How" },
            },
            "$defs": { "How": { "type": "object", "properties": { "fast": { "type": "boolean" } } } },
            "additionalProperties": false,
        });
        widen_inside(&mut schema);
        let or_reference = |value: Value| json!({ "anyOf": [value, reference()] });
        let names = json!({ "type": "array", "items": or_reference(json!({ "type": "string" })) });
        let fast = or_reference(json!({ "type": "boolean" }));
        let expected = json!({
            "type": "object",
            "properties": {
                "to": or_reference(names),
                "how": or_reference(json!({ "$ref": "#/$defs/How" })),
            },
            "$defs": { "How": { "type": "object", "properties": { "fast": fast } } },
            "additionalProperties": false,
        });
        assert_eq!(schema, expected);
    }
}
