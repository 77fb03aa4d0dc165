use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What an interrupted run waits for.
///
/// It serialises, so that the run can be resumed by another process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Pending {
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
    /// Anything else that the one who answers needs.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub payload: Value,
}

impl Pending {
    /// A wait named `id` for `reason`.
    #[must_use]
    pub fn new(id: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            reason: reason.into(),
            message: None,
            tool_call_id: None,
            payload: Value::Null,
        }
    }

    /// The same wait with what to tell the person who is asked.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// The same wait with data for whoever answers.
    #[must_use]
    pub fn with_payload(mut self, payload: Value) -> Self {
        self.payload = payload;
        self
    }
}
