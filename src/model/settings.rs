use std::borrow::Cow;

use schemars::JsonSchema;
use serde_json::{Map, Value};

use crate::tool;

/// How a model should answer. What is left out, the provider decides.
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
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// The model, where the provider serves several.
    pub model: Option<String>,
    /// How freely tokens are drawn; 0 is the most likely ones.
    pub temperature: Option<f64>,
    /// Draw only from the likeliest tokens that together have this probability.
    pub top_p: Option<f64>,
    /// Tokens to write at most, reasoning included.
    pub max_tokens: Option<u32>,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Asks for the same answer to the same request.
    pub seed: Option<u64>,
    /// Whether tools may, must or must not be called.
    pub tool_choice: Option<ToolChoice>,
    /// Whether one answer may call several tools.
    pub parallel_tool_calls: Option<bool>,
    /// How much a reasoning model should think.
    pub reasoning_effort: Option<ReasoningEffort>,
    /// What form the answer takes.
    pub response_format: Option<ResponseFormat>,
    /// Fields only the provider knows, sent as they are. They win over the fields above.
    pub extra: Map<String, Value>,
}

impl Settings {
    /// These settings, with what they leave out taken from `base`.
    #[must_use]
    pub fn over(self, base: &Self) -> Self {
        let mut extra = base.extra.clone();
        extra.extend(self.extra);
        Self {
            model: self.model.or_else(|| base.model.clone()),
            temperature: self.temperature.or(base.temperature),
            top_p: self.top_p.or(base.top_p),
            max_tokens: self.max_tokens.or(base.max_tokens),
            stop: if self.stop.is_empty() { base.stop.clone() } else { self.stop },
            seed: self.seed.or(base.seed),
            tool_choice: self.tool_choice.or_else(|| base.tool_choice.clone()),
            parallel_tool_calls: self.parallel_tool_calls.or(base.parallel_tool_calls),
            reasoning_effort: self.reasoning_effort.or_else(|| base.reasoning_effort.clone()),
            response_format: self.response_format.or_else(|| base.response_format.clone()),
            extra,
        }
    }
}

/// Whether tools may, must or must not be called.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolChoice {
    /// As the model sees fit.
    Auto,
    /// No tool.
    None,
    /// At least one tool.
    Required,
    /// This tool.
    Tool(String),
}

/// How much a reasoning model should think.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningEffort {
    /// Not at all.
    None,
    /// As little as it can.
    Minimal,
    /// A little.
    Low,
    /// Somewhat.
    Medium,
    /// Much.
    High,
    /// A word of the provider's own.
    Other(Cow<'static, str>),
}

/// What form the answer takes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ResponseFormat {
    /// Words.
    Text,
    /// Any JSON object.
    Json,
    /// JSON that fits a schema.
    JsonSchema {
        /// Names the schema to the model.
        name: String,
        /// The JSON Schema.
        schema: Value,
        /// Whether the provider must guarantee that the answer fits.
        strict: bool,
    },
}

impl ResponseFormat {
    /// Returns the format of JSON that deserialises into `T`.
    ///
    /// It is strict where it can be: every object in it is closed and has all its properties,
    /// those of an `Option` as null where they have no value. A `T` with a map, a
    /// `serde_json::Value` or a flattened `enum` in it cannot be closed, and one that is no struct
    /// cannot be the root of a strict schema: such a format is not strict, and OpenAI refuses a
    /// root that is no object also then.
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
    #[must_use]
    pub fn of<T: JsonSchema>() -> Self {
        let (schema, strict) = tool::answer::<T>();
        Self::JsonSchema { name: format_name(&T::schema_name()), schema, strict }
    }
}

/// Providers take 64 letters, digits, `_` and `-`; the names of generic types have others.
fn format_name(name: &str) -> String {
    let taken = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    name.chars().map(taken).take(64).collect()
}
