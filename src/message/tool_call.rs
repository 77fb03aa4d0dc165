use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Arguments, Part, ProviderData};

/// A tool call of the model. Cloning is O(1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolCall {
    /// The provider's id of the call, which the result refers to. An agent replaces an id that is
    /// empty, used twice in one response, or longer than 16 KiB.
    pub id: Arc<str>,
    /// The name of the tool.
    pub name: Arc<str>,
    /// The arguments, as the model wrote them.
    pub arguments: Arguments,
    /// Provider data that must be sent back.
    #[serde(default, skip_serializing_if = "ProviderData::is_empty")]
    pub provider: ProviderData,
}

impl ToolCall {
    /// Creates a call of the tool `name`.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::message::ToolCall;
    ///
    /// let call = ToolCall::new("call_1", "add", json!({ "a": 1, "b": 2 }));
    /// assert_eq!(call.arguments.value()["a"], 1);
    /// ```
    #[must_use]
    pub fn new(
        id: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
        arguments: impl Into<Arguments>,
    ) -> Self {
        let (id, name, arguments) = (id.into(), name.into(), arguments.into());
        Self { id, name, arguments, provider: ProviderData::default() }
    }

    /// Creates a call with the model's own [text](Arguments::from_text) as arguments.
    #[must_use]
    pub fn from_text(
        id: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
        arguments: impl Into<String>,
    ) -> Self {
        Self::new(id, name, Arguments::from_text(arguments))
    }
}

/// The result of a tool call, as the model reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolResult {
    /// The id of the call.
    pub call_id: Arc<str>,
    /// The name of the tool.
    pub name: Arc<str>,
    /// The parts that the model reads.
    pub parts: Vec<Part>,
    /// Whether the tool failed.
    #[serde(default)]
    pub is_error: bool,
}

impl ToolResult {
    /// Creates the result of `call`.
    #[must_use]
    pub fn new(call: &ToolCall, parts: impl IntoIterator<Item = Part>) -> Self {
        Self {
            call_id: call.id.clone(),
            name: call.name.clone(),
            parts: parts.into_iter().collect(),
            is_error: false,
        }
    }

    /// Marks the result as a failure.
    #[must_use]
    pub fn failed(mut self) -> Self {
        self.is_error = true;
        self
    }

    /// Returns the text of all text parts, joined.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts.iter().filter_map(Part::as_text).collect()
    }
}
