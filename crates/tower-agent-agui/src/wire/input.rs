use std::str::{self, Utf8Error};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::forwarded::ForwardedProps;
use super::message::Message;
use super::skip::{absent, or_default, payload, word};

/// The client's request: the body of a post.
///
/// ```
/// use tower_agent_agui::RunAgentInput;
///
/// let input = RunAgentInput::from_json(
///     br#"{
///         "threadId": "t1",
///         "runId": "r1",
///         "messages": [{ "id": "m1", "role": "user", "content": "Hello" }]
///     }"#,
/// )?;
/// assert_eq!(&*input.thread_id, "t1");
///
/// let error = RunAgentInput::from_json(
///     br#"{"threadId":"t1","runId":"r1","messages":[{"id":"m1","role":"wizard"}]}"#,
/// )
/// .unwrap_err();
/// assert_eq!(error.path(), "messages[0].role");
/// # Ok::<_, tower_agent_agui::InputError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RunAgentInput {
    /// The thread's id.
    pub thread_id: Arc<str>,
    /// The run's id.
    pub run_id: Arc<str>,
    /// The protocol version of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<Arc<str>>,
    /// The run that this one branches from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<Arc<str>>,
    /// The client's state. A server takes it out: callbacks find it as the run's
    /// [state](tower_agent::RunContext::state).
    #[serde(skip_serializing_if = "absent", default)]
    pub state: Option<Value>,
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// The tools that the client executes itself.
    #[serde(deserialize_with = "or_default", default)]
    pub tools: Vec<Tool>,
    /// Context for the agent.
    #[serde(deserialize_with = "or_default", default)]
    pub context: Vec<Context>,
    /// Further data, for the application.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub forwarded_props: Option<ForwardedProps>,
    /// Answers to the interrupts of the thread's last run.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "or_default",
        default
    )]
    pub resume: Vec<ResumeEntry>,
}

impl RunAgentInput {
    /// Creates an input for the run `run_id` of the thread `thread_id` with these messages.
    #[must_use]
    pub fn new(
        thread_id: impl Into<Arc<str>>,
        run_id: impl Into<Arc<str>>,
        messages: impl IntoIterator<Item = Message>,
    ) -> Self {
        Self {
            thread_id: thread_id.into(),
            run_id: run_id.into(),
            protocol_version: None,
            parent_run_id: None,
            state: None,
            messages: messages.into_iter().collect(),
            tools: Vec::new(),
            context: Vec::new(),
            forwarded_props: None,
            resume: Vec::new(),
        }
    }

    /// Parses the body of a request.
    ///
    /// # Errors
    ///
    /// Fails if the body is not JSON or not an input; the error says where and why.
    pub fn from_json(body: &[u8]) -> Result<Self, InputError> {
        // serde_json does not check UTF-8 in skipped values.
        let text = str::from_utf8(body).map_err(InputError::not_utf8)?;
        let mut json = serde_json::Deserializer::from_str(text);
        let input = serde_path_to_error::deserialize(&mut json)
            .map_err(|error| InputError::json(error.path().to_string(), error.inner()))?;
        // A second value after the first is not ignored: the client and we would read the body
        // differently.
        json.end().map_err(|error| InputError::json(".", &error))?;
        Ok(input)
    }
}

/// A tool that the client executes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tool {
    /// The tool's name.
    pub name: Arc<str>,
    /// The description, for the model.
    pub description: String,
    /// The JSON Schema of the arguments.
    #[serde(skip_serializing_if = "absent", default)]
    pub parameters: Option<Value>,
    /// Further data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

/// A piece of context for the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// The description of the value.
    pub description: String,
    /// The value.
    pub value: String,
}

/// An answer to an [`Interrupt`](super::Interrupt).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ResumeEntry {
    /// The id of the interrupt.
    pub interrupt_id: Arc<str>,
    /// The status: answered or cancelled.
    #[serde(deserialize_with = "word")]
    pub status: ResumeStatus,
    /// The answer. An object in it with a key twice is an error.
    #[serde(skip_serializing_if = "absent", deserialize_with = "payload", default)]
    pub payload: Option<Value>,
    /// Further data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

/// The status of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ResumeStatus {
    /// It was answered.
    Resolved,
    /// The user declined to answer.
    Cancelled,
}

/// A rejected input: where, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid run input at `{path}`: {message}")]
pub struct InputError {
    path: String,
    message: String,
    kind: InputErrorKind,
    retry_after: Option<Duration>,
}

/// The reason for which an input is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InputErrorKind {
    /// It is not JSON.
    Syntax,
    /// It does not follow the protocol, or cannot be carried out.
    Invalid,
    /// It contains data that only the server may set.
    Forbidden,
    /// It answers an interrupt that is not open.
    NotOpen,
    /// It answers an interrupt whose time is [over](tower_agent::Interrupt::with_expiry).
    Expired,
    /// Another run is active in the thread.
    Busy,
    /// The server has as many runs at once as it [may](crate::AgUiBuilder::max_runs).
    Overloaded,
    /// The principal has as many runs at once as it
    /// [may](crate::AgUiBuilder::max_runs_per_principal).
    TooManyRuns,
    /// The server [shuts down](crate::AgUi::shutdown): another one takes the same request.
    ShuttingDown,
    /// The thread could not be loaded or saved.
    Store,
}

impl InputErrorKind {
    /// Returns a stable code for programs, such as `not_open`.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::Invalid => "invalid",
            Self::Forbidden => "forbidden",
            Self::NotOpen => "not_open",
            Self::Expired => "expired",
            Self::Busy => "busy",
            Self::Overloaded => "overloaded",
            Self::TooManyRuns => "too_many_runs",
            Self::ShuttingDown => "shutting_down",
            Self::Store => "store",
        }
    }
}

impl InputError {
    /// Returns the error about the answer at this index.
    pub(crate) fn of_answer(index: usize, message: impl ToString) -> Self {
        Self::new(format!("resume[{index}].interruptId"), message)
    }

    pub(crate) fn new(path: impl Into<String>, message: impl ToString) -> Self {
        Self {
            path: path.into(),
            message: message.to_string(),
            kind: InputErrorKind::Invalid,
            retry_after: None,
        }
    }

    /// Sets the kind.
    pub(crate) fn of(self, kind: InputErrorKind) -> Self {
        Self { kind, ..self }
    }

    /// Sets the time after which the same input may be accepted.
    pub(crate) fn after(self, retry_after: Option<Duration>) -> Self {
        Self {
            retry_after,
            ..self
        }
    }

    fn json(path: impl Into<String>, error: &serde_json::Error) -> Self {
        let kind = if error.is_syntax() || error.is_eof() {
            InputErrorKind::Syntax
        } else {
            InputErrorKind::Invalid
        };
        // If a key is invalid, the path is that of the object.
        let path: String = path.into();
        let path = path
            .strip_suffix('?')
            .unwrap_or(&path)
            .trim_end_matches('.');
        let path = if path.is_empty() { "." } else { path };
        Self::new(path, error).of(kind)
    }

    fn not_utf8(error: Utf8Error) -> Self {
        let message = format!("the JSON is not valid UTF-8: {error}");
        Self::new(".", message).of(InputErrorKind::Syntax)
    }

    /// Returns whether the input is not JSON.
    #[must_use]
    pub fn is_syntax(&self) -> bool {
        self.kind == InputErrorKind::Syntax
    }

    /// Returns the kind, for programs.
    #[must_use]
    pub fn kind(&self) -> InputErrorKind {
        self.kind
    }

    /// Returns the time after which the same input may be accepted, if that is known: the thread of
    /// another run is free then, if the server of that run has stopped.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the path, such as `messages[2].content[0].type`; `.` for the whole.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}
