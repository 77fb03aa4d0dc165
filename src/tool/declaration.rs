use std::sync::Arc;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::ProviderData;

/// What a tool does to the world; retries and approvals go by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Effect {
    /// Nothing: it only reads or computes.
    Pure,
    /// Calling it twice does no more than calling it once.
    Idempotent,
    /// Every call changes something.
    #[default]
    Mutating,
}

/// What a model is told of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolDeclaration {
    name: Arc<str>,
    description: String,
    parameters: Value,
    effect: Effect,
    #[serde(default, skip_serializing_if = "ProviderData::is_empty")]
    provider: ProviderData,
}

impl ToolDeclaration {
    /// A tool named `name` that takes no arguments and, for all one knows, changes the world.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            parameters: serde_json::json!({ "type": "object", "properties": {} }),
            effect: Effect::default(),
            provider: ProviderData::default(),
        }
    }

    /// The same tool, taking what deserialises into `A`.
    #[must_use]
    pub fn with_arguments<A: JsonSchema>(self) -> Self {
        self.with_parameters(schema_of::<A>())
    }

    /// The same tool, taking what fits a JSON Schema of an object.
    #[must_use]
    pub fn with_parameters(mut self, schema: Value) -> Self {
        self.parameters = schema;
        self
    }

    /// The same tool with what it does to the world.
    #[must_use]
    pub fn with_effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    /// The tool's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it does, for the model.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The JSON Schema of its arguments.
    #[must_use]
    pub fn parameters(&self) -> &Value {
        &self.parameters
    }

    /// What it does to the world.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// What only one provider knows of the tool.
    #[must_use]
    pub fn provider(&self) -> &ProviderData {
        &self.provider
    }

    /// What only one provider knows of the tool, to change.
    pub fn provider_mut(&mut self) -> &mut ProviderData {
        &mut self.provider
    }
}

/// The JSON Schema of `T` in the form that providers read: draft 7, with nothing by reference.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    if schema.get("type").and_then(Value::as_str) == Some("object") {
        schema
            .ensure_object()
            .entry("properties")
            .or_insert_with(|| Value::Object(Default::default()));
    }
    schema.to_value()
}
