use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::prompt_cache::PromptCache;
use super::server_tool::ServerTool;
use crate::tool::{self, ToolDeclaration};

/// Settings of a model call. The provider decides about unset fields. They serialise without the
/// unset fields.
///
/// ```
/// use tower_agent::Settings;
/// use tower_agent::model::ToolChoice;
///
/// let mut settings = Settings::default();
/// settings.temperature = Some(0.2);
/// settings.tool_choice = Some(ToolChoice::Required);
/// settings.extra.insert("logit_bias".into(), serde_json::json!({ "50256": -100 }));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
#[must_use]
pub struct Settings {
    /// The model's name, for providers that serve several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The sampling temperature; 0 picks the most likely tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling: draw from the most likely tokens that together have this probability.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Maximum number of output tokens, reasoning included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Texts that end the response.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Seed for reproducible sampling, where the provider supports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The tools that the model may or must call. An agent forces a call until the model has called
    /// a tool in the run: if it had to in each step, it could never answer. Where `stop_when` ends
    /// the run, or a [final answer](crate::agent::AnswerMode::Tool) is given by a tool, it is
    /// forced in each step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// The tools that the provider runs itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub server_tools: Vec<ServerTool>,
    /// One response may contain several tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// The effort that a reasoning model should make.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<ReasoningEffort>,
    /// The format of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_format: Option<ResponseFormat>,
    /// The cache that the provider should keep of the start of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_cache: Option<PromptCache>,
    /// Fields specific to the provider, merged with the body of the request. They override the
    /// fields above.
    #[serde(
        skip_serializing_if = "Map::is_empty",
        serialize_with = "crate::depth::serialize"
    )]
    pub extra: Map<String, Value>,
}

impl Settings {
    /// Returns these settings with unset fields filled in from `base`, and with the
    /// [`extra`](Self::extra) fields of both: objects are merged field by field at any depth.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::Settings;
    ///
    /// let [mut base, mut own] = [Settings::default(), Settings::default()];
    /// base.extra.insert("text".into(), json!({ "verbosity": "low", "format": 1 }));
    /// own.extra.insert("text".into(), json!({ "verbosity": "high" }));
    /// let both = own.or(&base).extra;
    /// assert_eq!(both["text"], json!({ "verbosity": "high", "format": 1 }));
    /// ```
    pub fn or(self, base: &Self) -> Self {
        // Merged at any depth, unlike the other fields: two layers may each set a field of a
        // provider.
        let mut extra = base.extra.clone();
        merge(&mut extra, self.extra);
        Self {
            model: self.model.or_else(|| base.model.clone()),
            temperature: self.temperature.or(base.temperature),
            top_p: self.top_p.or(base.top_p),
            max_tokens: self.max_tokens.or(base.max_tokens),
            stop: if self.stop.is_empty() {
                base.stop.clone()
            } else {
                self.stop
            },
            seed: self.seed.or(base.seed),
            tool_choice: self.tool_choice.or_else(|| base.tool_choice.clone()),
            server_tools: if self.server_tools.is_empty() {
                base.server_tools.clone()
            } else {
                self.server_tools
            },
            parallel_tool_calls: self.parallel_tool_calls.or(base.parallel_tool_calls),
            reasoning_effort: self
                .reasoning_effort
                .or_else(|| base.reasoning_effort.clone()),
            response_format: self
                .response_format
                .or_else(|| base.response_format.clone()),
            prompt_cache: self.prompt_cache.or_else(|| base.prompt_cache.clone()),
            extra,
        }
    }
}

/// Lists the fields of [`Settings`] that differ.
macro_rules! changed_fields {
    ($earlier:ident, $later:ident: $($field:ident)*) => {{
        // Without `..`, so that a new field is compared.
        let Settings { $($field),* } = $earlier;
        let mut changed = Vec::new();
        $(
            if *$field != $later.$field {
                changed.push(stringify!($field));
            }
        )*
        changed
    }};
}

impl Settings {
    pub(super) fn changed_fields(&self, later: &Self) -> Vec<&'static str> {
        changed_fields!(
            self, later: model temperature top_p max_tokens stop seed tool_choice server_tools
            parallel_tool_calls reasoning_effort response_format prompt_cache extra
        )
    }
}

fn merge(base: &mut Map<String, Value>, fields: Map<String, Value>) {
    for (name, value) in fields {
        match (base.get_mut(&name), value) {
            (Some(Value::Object(base)), Value::Object(fields)) => merge(base, fields),
            (_, value) => {
                base.insert(name, value);
            }
        }
    }
}

/// The tools that the model may or must call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// No tool.
    None,
    /// At least one tool.
    Required,
    /// The tool with this name.
    Tool(String),
}

/// The effort that a reasoning model should make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReasoningEffort {
    /// No reasoning.
    None,
    /// The least possible.
    Minimal,
    /// Low effort.
    Low,
    /// Medium effort.
    Medium,
    /// High effort.
    High,
    /// Another level, in the provider's own term.
    Other(Cow<'static, str>),
}

/// The format of a response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[must_use]
pub enum ResponseFormat {
    /// Plain text.
    Text,
    /// Any JSON object.
    Json,
    /// JSON that matches a schema.
    JsonSchema {
        /// The schema's name, sent to the model.
        name: String,
        /// The JSON Schema.
        schema: Value,
        /// The provider must guarantee that the response matches.
        strict: bool,
    },
}

impl ResponseFormat {
    /// The name of the tool that gives an answer in the place of a response format.
    pub const ANSWER_TOOL: &str = "final_answer";

    /// Returns the tool whose arguments are an answer that matches a schema: for a provider that
    /// takes no schema as the response format of a call.
    pub fn answer_tool(schema: Value) -> ToolDeclaration {
        let description = "Gives the final answer. Call it once, alone, when you know the answer.";
        ToolDeclaration::new(Self::ANSWER_TOOL, description).with_parameters(schema)
    }

    /// Returns instructions to give an answer that matches a schema, for the model to read: for a
    /// provider that takes neither a schema nor a tool that must be called.
    #[must_use]
    pub fn instructions(schema: &Value) -> String {
        let text = "Give your final answer as JSON that matches this schema, and as nothing else:";
        format!("{text}\n{schema}")
    }

    /// Returns the format for JSON that deserialises into `T`.
    ///
    /// It is strict where possible: every object is closed and requires all its properties, and an
    /// absent `Option` is null. It is not strict if `T` contains a map, a `serde_json::Value` or a
    /// flattened `enum`, since those cannot be closed, or if `T` is not a struct, since the root of
    /// a strict schema must be an object. OpenAI rejects a root that is not an object even then.
    ///
    /// ```
    /// use schemars::JsonSchema;
    /// use tower_agent::model::ResponseFormat;
    ///
    /// #[derive(JsonSchema)]
    /// struct Weather {
    ///     celsius: f64,
    /// }
    ///
    /// let format = ResponseFormat::of::<Weather>();
    /// # assert!(matches!(format, ResponseFormat::JsonSchema { name, .. } if name == "Weather"));
    /// ```
    pub fn of<T: JsonSchema>() -> Self {
        let (schema, strict) = tool::answer::<T>();
        Self::JsonSchema {
            name: format_name(&T::schema_name()),
            schema,
            strict,
        }
    }
}

/// Returns the name of a format as providers accept it. They allow 64 letters, digits, `_` and `-`;
/// names of generic types contain other characters.
pub(crate) fn format_name(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            c if c.is_ascii_alphanumeric() || c == '-' => c,
            _ => '_',
        })
        .take(64)
        .collect()
}
