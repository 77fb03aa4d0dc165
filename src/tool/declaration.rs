use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::arguments;
use super::schema::Parameters;
use crate::error::Result;
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
    #[serde(skip)]
    check: Check,
}

/// How the tool reads its arguments, where it is a function of a type.
#[derive(Clone, Default)]
struct Check(Option<Arc<CheckArguments>>);

type CheckArguments = dyn Fn(&Value) -> Result<()> + Send + Sync;

/// It says what the schema says.
impl PartialEq for Check {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Check({})", self.0.is_some())
    }
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
            check: Check::default(),
        }
    }

    pub(super) fn with_check(
        mut self,
        check: impl Fn(&Value) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.check = Check(Some(Arc::new(check)));
        self
    }

    /// Says whether the tool could take these arguments: those of a
    /// [function](super::Tool::function) as the function reads them, those of a
    /// [service](super::Tool::service) as far as the schema lists what is required.
    ///
    /// # Errors
    ///
    /// Of kind [`InvalidArguments`](crate::ErrorKind::InvalidArguments), with the field and what
    /// is wrong with it.
    pub fn check_arguments(&self, arguments: &Value) -> Result<()> {
        match &self.check.0 {
            Some(check) => check(arguments),
            None => arguments::check(arguments, &self.parameters),
        }
    }

    /// Sets the parameters to what deserialises into `A`.
    ///
    /// Parameters are always an object. An `A` that is one stands as it is; any other, such as a
    /// number, a list, an `enum` or an `Option`, is the object's one property, `value`; `()` is an
    /// object without properties, and a `serde_json::Value` an object with any.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::tool::ToolDeclaration;
    ///
    /// let wipe = ToolDeclaration::new("wipe", "Wipes a disk.").with_arguments::<String>();
    /// assert_eq!(wipe.parameters()["properties"], json!({ "value": { "type": "string" } }));
    /// ```
    #[must_use]
    pub fn with_arguments<A: JsonSchema>(self) -> Self {
        self.with_parameters(Parameters::of::<A>().schema)
    }

    /// Sets the parameters to a JSON Schema, which must be that of an object: [`InvalidTool`]
    /// says so when the tool is added to a [`ToolSet`](super::ToolSet) or an agent.
    ///
    /// [`InvalidTool`]: super::InvalidTool
    #[must_use]
    pub fn with_parameters(mut self, schema: Value) -> Self {
        self.parameters = schema;
        self.check = Check::default();
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

    /// The JSON Schema of its arguments: of an object.
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
