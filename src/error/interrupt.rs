use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What an interrupted run waits for.
///
/// It serialises, so that the run can be resumed by another process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Interrupt {
    /// Names this wait; unique among those of one run.
    pub id: String,
    /// Why the run waits: `tool_call`, `input_required`, `confirmation` or a word of your own.
    pub reason: String,
    /// What to tell the person who is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The tool call that waits. Filled in from the call when left empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The JSON Schema of the answer, for a front end to make a form of.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub response_schema: Value,
    /// Anything else that the one who answers needs.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub payload: Value,
}

impl Interrupt {
    /// A wait named `id` for `reason`.
    #[must_use]
    pub fn new(id: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            reason: reason.into(),
            message: None,
            tool_call_id: None,
            response_schema: Value::Null,
            payload: Value::Null,
        }
    }

    /// The same wait with what to tell the person who is asked.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// The same wait with the JSON Schema of the answer.
    #[must_use]
    pub fn with_response_schema(mut self, schema: Value) -> Self {
        self.response_schema = schema;
        self
    }

    /// The same wait with data for whoever answers.
    #[must_use]
    pub fn with_payload(mut self, payload: Value) -> Self {
        self.payload = payload;
        self
    }
}

/// The answer to one [`Interrupt`], for the run that goes on.
///
/// ```
/// use serde_json::json;
/// use tower_agent::Resolution;
///
/// let yes = Resolution::resolved("agent/call_1", json!({ "approved": true }));
/// let saved = serde_json::to_value(&yes).unwrap();
/// assert_eq!(
///     saved,
///     json!({ "id": "agent/call_1", "status": "resolved", "payload": { "approved": true } }),
/// );
/// assert_eq!(serde_json::from_value::<Resolution>(saved).unwrap(), yes);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Resolution {
    /// The [`Interrupt::id`] that this answers.
    pub id: String,
    /// What the answer is.
    #[serde(flatten)]
    pub outcome: ResolutionOutcome,
}

/// How a [`Interrupt`] was answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", content = "payload", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ResolutionOutcome {
    /// With this. What it must look like, whoever asked has said.
    Resolved(Value),
    /// Not at all: nobody will answer.
    Cancelled,
}

impl Resolution {
    /// The wait named `id` was answered with `payload`.
    #[must_use]
    pub fn resolved(id: impl Into<String>, payload: impl Into<Value>) -> Self {
        Self { id: id.into(), outcome: ResolutionOutcome::Resolved(payload.into()) }
    }

    /// The wait named `id` will not be answered.
    #[must_use]
    pub fn cancelled(id: impl Into<String>) -> Self {
        Self { id: id.into(), outcome: ResolutionOutcome::Cancelled }
    }
}
