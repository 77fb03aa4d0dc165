use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::arguments;
use super::schema::Parameters;
use crate::error::Result;
use crate::message::ProviderData;

/// The side effects of a tool, which retries and approvals depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Effect {
    /// None: the tool only reads or computes.
    Pure,
    /// Repeating a call has no further effect.
    Idempotent,
    /// Every call may change something.
    #[default]
    Mutating,
}

/// The description of a tool that the model receives: name, description, parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[must_use]
pub struct ToolDeclaration {
    name: Arc<str>,
    #[serde(default)]
    description: String,
    #[serde(default = "no_parameters")]
    parameters: Value,
    #[serde(default)]
    pub(super) effect: Effect,
    #[serde(default, skip_serializing_if = "ProviderData::is_empty")]
    provider: ProviderData,
    #[serde(skip)]
    check: ArgumentCheck,
    #[serde(skip)]
    pub(super) is_agent: bool,
    #[serde(skip)]
    is_transfer: bool,
    #[serde(skip)]
    pub(super) gives_answer: bool,
    #[serde(skip)]
    is_described_by_others: bool,
    #[serde(skip)]
    is_part_of_loop: bool,
}

fn no_parameters() -> Value {
    serde_json::json!({ "type": "object", "properties": {} })
}

/// A check that parses arguments as the tool does, if the tool is a typed function.
#[derive(Clone, Default)]
struct ArgumentCheck(Option<Arc<CheckArguments>>);

type CheckArguments = dyn Fn(&Value) -> Result<()> + Send + Sync;

/// The check follows from the schema, which is compared.
impl PartialEq for ArgumentCheck {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for ArgumentCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArgumentCheck({})", self.0.is_some())
    }
}

impl ToolDeclaration {
    /// Creates a declaration without parameters. The effect is [`Mutating`](Effect::Mutating).
    pub fn new(name: impl Into<Arc<str>>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            parameters: no_parameters(),
            effect: Effect::default(),
            provider: ProviderData::default(),
            check: ArgumentCheck::default(),
            is_agent: false,
            is_transfer: false,
            gives_answer: false,
            is_described_by_others: false,
            is_part_of_loop: false,
        }
    }

    /// Marks the description and the parameters as the words of others, such as an MCP server or
    /// the page of a front end, and not of the application: a model that reads them reads what
    /// these chose.
    pub fn described_by_others(mut self) -> Self {
        self.is_described_by_others = true;
        self
    }

    /// Returns whether [others](Self::described_by_others) than the application have written the
    /// description and the parameters.
    #[must_use]
    pub fn is_described_by_others(&self) -> bool {
        self.is_described_by_others
    }

    /// Marks the tool as a part of how the agent works, and not of what it does for anybody: it
    /// finds tools, hands the conversation over or shows what the model was sent before. Rules
    /// about a business leave it out; what it leads to is a call or a result of its own.
    ///
    /// A declaration that comes from elsewhere, such as from an MCP server, never has the mark.
    pub fn part_of_loop(mut self) -> Self {
        self.is_part_of_loop = true;
        self
    }

    /// Returns whether the tool is [a part of how the agent works](Self::part_of_loop).
    #[must_use]
    pub fn is_part_of_loop(&self) -> bool {
        self.is_transfer || (self.is_part_of_loop && !self.is_described_by_others)
    }

    /// Returns whether an [agent](crate::Agent::into_tool) is the tool: called again in a resumed
    /// run, it continues where it stopped, whatever its effect.
    #[must_use]
    pub fn is_agent(&self) -> bool {
        self.is_agent
    }

    pub(crate) fn of_transfer(mut self) -> Self {
        self.is_transfer = true;
        self
    }

    /// Returns whether the tool transfers the conversation to a
    /// [sub-agent](crate::AgentBuilder::sub_agent): its result has no words of its own.
    #[must_use]
    pub fn is_transfer(&self) -> bool {
        self.is_transfer
    }

    /// Returns whether the result of the tool is [the run's answer](super::Tool::gives_answer).
    #[must_use]
    pub fn gives_answer(&self) -> bool {
        self.gives_answer
    }

    pub(super) fn with_check(
        mut self,
        check: impl Fn(&Value) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.check = ArgumentCheck(Some(Arc::new(check)));
        self
    }

    /// Returns whether the tool is a function, which parses its arguments.
    pub(super) fn parses_arguments(&self) -> bool {
        self.check.0.is_some()
    }

    /// Checks whether the tool accepts these arguments. For a [function](super::Tool::function)
    /// this parses them; for a [service](super::Tool::service) it checks the fields that the schema
    /// requires, and the JSON types.
    ///
    /// # Errors
    ///
    /// Fails with kind [`InvalidArguments`](crate::ErrorKind::InvalidArguments), naming the field
    /// and the problem.
    pub fn check_arguments(&self, arguments: &Value) -> Result<()> {
        match &self.check.0 {
            Some(check) => check(arguments),
            None => Ok(arguments::check(arguments, &self.parameters)?),
        }
    }

    /// Sets the parameters to those of type `A`.
    ///
    /// Parameters are always an object. If `A` is a struct, its fields are the properties. Any
    /// other type, such as a number, a list, an `enum` or an `Option`, becomes the object's one
    /// property, `value`. `()` becomes an object without properties, and a `serde_json::Value` an
    /// object with any properties.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::tool::ToolDeclaration;
    ///
    /// let wipe = ToolDeclaration::new("wipe", "Wipes a disk.").with_arguments::<String>();
    /// assert_eq!(wipe.parameters()["properties"], json!({ "value": { "type": "string" } }));
    /// ```
    pub fn with_arguments<A: JsonSchema>(self) -> Self {
        self.with_parameters(Parameters::of::<A>().schema)
    }

    /// Sets the parameters to a JSON Schema, which must be that of an object; otherwise adding the
    /// tool to a [`ToolSet`](super::ToolSet) or an agent fails with [`InvalidTool`].
    ///
    /// [`InvalidTool`]: super::InvalidTool
    pub fn with_parameters(mut self, schema: Value) -> Self {
        self.parameters = schema;
        // The check belongs to the schema before: it would refuse arguments that the new one
        // allows.
        self.check = ArgumentCheck::default();
        self
    }

    /// Sets the side effects of the tool.
    pub fn with_effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    /// Returns the tool's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the description, for the model.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the JSON Schema of the arguments, which is that of an object.
    #[must_use]
    pub fn parameters(&self) -> &Value {
        &self.parameters
    }

    /// Returns the side effects of the tool.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// Returns data specific to one provider.
    #[must_use]
    pub fn provider(&self) -> &ProviderData {
        &self.provider
    }

    /// Returns data specific to one provider, to change it.
    pub fn provider_mut(&mut self) -> &mut ProviderData {
        &mut self.provider
    }
}
