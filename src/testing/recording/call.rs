use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A call as data: what it is, and its request.
///
/// Calls are matched by their kind and path, and then by their request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecordedCall {
    /// The kind of call.
    #[serde(rename = "call")]
    pub kind: String,
    /// The name of what is called, for errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The agents and tool calls that contain the call, as
    /// [`call_path`](crate::RunContext::call_path) names them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The request.
    pub request: Value,
}

impl RecordedCall {
    /// Creates a call.
    #[must_use]
    pub fn new(kind: impl Into<String>, request: Value) -> Self {
        Self {
            kind: kind.into(),
            name: None,
            path: String::new(),
            request,
        }
    }

    /// Sets the name of what is called.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }
}
