use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, ErrorKind};
use crate::message::{Message, Metadata, NoAnswer, Part};
use crate::model::{ResponseFormat, format_name};
use crate::tool::{AnswerSchema, InvalidArguments};

/// The format of a run's final answer: JSON of one type.
///
/// [`Agent::run_typed`](crate::Agent::run_typed) uses `AnswerFormat::of::<T>()`. To change it, add
/// it to the request.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// use serde_json::json;
/// use tower_agent::agent::{AnswerFormat, AnswerMode};
/// use tower_agent::{Agent, AgentRequest};
/// use tower_agent_test::{ScriptedModel, Turn};
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Weather {
///     celsius: f64,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// let model = ScriptedModel::new([Turn::tool("final_answer", json!({ "celsius": 21 }))]);
/// let agent = Agent::builder(model).build()?;
///
/// let format = AnswerFormat::of::<Weather>().mode(AnswerMode::Tool).max_repairs(1);
/// let request = AgentRequest::new("How warm is it?").with_answer_format(format);
/// let weather: Weather = agent.run(request).await?.parse()?;
/// assert_eq!(weather.celsius, 21.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct AnswerFormat {
    name: Arc<str>,
    answer: Arc<AnswerSchema>,
    check: fn(&AnswerSchema, &Message) -> Result<(), InvalidAnswer>,
    pub(crate) mode: AnswerMode,
    pub(crate) max_repairs: u32,
}

/// The way in which a model is made to give its final answer in a format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AnswerMode {
    /// As the provider can, in each model call: the schema is its [response
    /// format](crate::Settings::response_format). Where the protocol, the model or the schema does
    /// not allow that, such as beside tools, a provider of `tower-agent-providers` asks for the
    /// answer by a tool, of which nobody else sees anything; where no call can be forced, either,
    /// the schema stands in the instructions. The error of a wrong answer says which it was, and
    /// why.
    #[default]
    Auto,
    /// By a tool, [`final_answer`](AnswerFormat::TOOL), whose arguments are the answer: for
    /// providers and models that have tools and no response format.
    ///
    /// The model must call a tool in each response, unless the settings contain a
    /// [tool choice](crate::Settings::tool_choice). A call of this tool is never run: its arguments
    /// become the text of the message directly after the model call, so that callbacks, the stream
    /// and the transcript have text as in any other run. Of several calls of it in one response the
    /// first counts, and the others are dropped. Beside calls of other tools it is not final: those
    /// run, and the model answers again.
    Tool,
    /// By instructions that contain the schema: for models that write JSON better without a
    /// constraint.
    Text,
}

/// A final answer that does not match its type, or is none.
///
/// [`Error::downcast_ref`] finds it in an error of kind
/// [`InvalidAnswer`](ErrorKind::InvalidAnswer).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidAnswer {
    /// The field, such as `days[1].celsius`; empty for the answer as a whole.
    pub field: String,
    /// The problem.
    pub problem: String,
    /// The text of the answer.
    pub answer: String,
}

impl AnswerFormat {
    /// The name of the tool in [`AnswerMode::Tool`].
    pub const TOOL: &str = ResponseFormat::ANSWER_TOOL;

    /// Creates the format for answers that deserialise into `T`.
    ///
    /// The root of its schema is an object. If `T` is not a struct, the schema is that of an object
    /// with the one property `value`. It is strict where possible, as in
    /// [`ResponseFormat::of`].
    pub fn of<T: DeserializeOwned + JsonSchema>() -> Self {
        Self {
            name: format_name(&T::schema_name()).into(),
            answer: Arc::new(AnswerSchema::of::<T>()),
            // A plain function, in which the type of the answer lives on: the format itself has no
            // generics.
            check: |answer, message| parse::<T>(answer, message).map(drop),
            mode: AnswerMode::default(),
            max_repairs: 2,
        }
    }

    /// Sets the mode. Defaults to [`Auto`](AnswerMode::Auto).
    pub fn mode(mut self, mode: AnswerMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets how often in a run the model is asked to repair an answer that does not match. Each
    /// repair is a model call that counts as an iteration. Defaults to 2.
    pub fn max_repairs(mut self, max: u32) -> Self {
        self.max_repairs = max;
        self
    }

    /// Returns the schema that the model receives.
    #[must_use]
    pub fn schema(&self) -> &Value {
        &self.answer.schema
    }

    pub(crate) fn response_format(&self) -> ResponseFormat {
        ResponseFormat::JsonSchema {
            name: self.name.to_string(),
            schema: self.answer.schema.clone(),
            strict: self.answer.strict,
        }
    }

    pub(crate) fn check(&self, message: &Message) -> Result<(), InvalidAnswer> {
        (self.check)(&self.answer, message)
    }

    /// Returns the error for an answer that does not match, in a response with this metadata.
    pub(crate) fn error(&self, invalid: InvalidAnswer, metadata: &Metadata) -> Error {
        let error = invalid.into_error(&self.name);
        let chosen = match self.mode {
            AnswerMode::Tool => "the schema was that of the tool `final_answer`".to_owned(),
            AnswerMode::Text => "the schema stood in the instructions".to_owned(),
            AnswerMode::Auto => chosen_by_provider(metadata),
        };
        let message = format!("{}; {chosen}", error.message());
        error.with_message(message)
    }

    pub(crate) fn ask_again(&self, invalid: &InvalidAnswer) -> Message {
        let how = match self.mode {
            AnswerMode::Auto | AnswerMode::Text => {
                "Answer again, only with JSON that matches this schema:"
            }
            AnswerMode::Tool => {
                "Answer again: call the tool `final_answer` with arguments that match this schema:"
            }
        };
        Message::user(format!(
            "The answer is not valid: {invalid}. {how}\n{}",
            self.answer.schema
        ))
    }

    /// Returns whether both are clones of one another, or both are none.
    pub(super) fn is_same(one: &Option<Self>, other: &Option<Self>) -> bool {
        match (one, other) {
            // By identity, since schemas are large: to take equal formats for different ones only
            // runs the guards again.
            (Some(one), Some(other)) => {
                Arc::ptr_eq(&one.answer, &other.answer)
                    && one.mode == other.mode
                    && one.max_repairs == other.max_repairs
            }
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

fn chosen_by_provider(metadata: &Metadata) -> String {
    if let Some(reason) = &metadata.answer_tool {
        return format!("the schema was that of the tool `final_answer`, since {reason}");
    }
    match &metadata.described_schema {
        Some(reason) => format!("the schema stood in the instructions, since {reason}"),
        None => "the schema was sent as the response format".to_owned(),
    }
}

/// Parses the text of a message, its last text, or the code block in its text.
fn parse<T: DeserializeOwned>(
    answer: &AnswerSchema,
    message: &Message,
) -> Result<T, InvalidAnswer> {
    let text = message.text();
    let parsed = answer.parse(&text).or_else(|invalid| {
        // Models say a sentence first, and then the JSON as a part of its own.
        match message.parts().iter().rev().find_map(Part::as_text) {
            Some(last) if *last != text => answer.parse(last),
            _ => Err(invalid),
        }
    });
    let parsed = parsed.or_else(|invalid| match code_block(&text) {
        Some(block) => answer.parse(block),
        None => Err(invalid),
    });
    parsed.map_err(|InvalidArguments { field, problem, .. }| InvalidAnswer {
        field,
        problem,
        answer: text,
    })
}

/// Returns the content of the code block; that of two is no JSON.
fn code_block(text: &str) -> Option<&str> {
    const FENCE: &str = "```";
    let (_, from_language) = text.split_once(FENCE)?;
    let (_, content) = from_language.split_once('\n')?;
    // A text in the JSON may have a fence.
    let (content, _) = content.rsplit_once(FENCE)?;
    Some(content)
}

pub(super) fn parse_as<T: DeserializeOwned + JsonSchema>(message: &Message) -> Result<T, Error> {
    let parsed = parse(&AnswerSchema::of::<T>(), message);
    parsed.map_err(|invalid| invalid.into_error(&T::schema_name()))
}

impl InvalidAnswer {
    pub(crate) fn none(why: NoAnswer, message: &Message) -> Self {
        Self {
            field: String::new(),
            problem: why.to_string(),
            answer: message.text(),
        }
    }

    fn into_error(self, of: &str) -> Error {
        let message = format!("the answer is not a `{of}`: {self}");
        Error::new(ErrorKind::InvalidAnswer, message).with_source(self)
    }
}

impl fmt::Display for InvalidAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.field {
            "" => f.write_str(&self.problem),
            field => write!(f, "field `{field}`: {}", self.problem),
        }
    }
}

impl std::error::Error for InvalidAnswer {}
