use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Arguments, Part, ProviderData};

/// The model asks for a tool. Cloning is O(1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolCall {
    /// The provider's name for this call; the result carries it back. An agent gives a call of its
    /// model another where it is empty, another call's of the same answer, or longer than 16 KiB.
    pub id: Arc<str>,
    /// The tool.
    pub name: Arc<str>,
    /// The arguments, as the model wrote them.
    pub arguments: Arguments,
    /// What a provider added and must get back.
    #[serde(default, skip_serializing_if = "ProviderData::is_empty")]
    pub provider: ProviderData,
}

impl ToolCall {
    /// A call of the tool `name`.
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

    /// A call whose arguments are the model's own [text](Arguments::from_text).
    #[must_use]
    pub fn from_text(
        id: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
        arguments: impl Into<String>,
    ) -> Self {
        Self::new(id, name, Arguments::from_text(arguments))
    }
}

/// How many bytes of a provider's id for a call are taken: some carry signatures in it. It stands
/// in every event of the call.
const MAX_CALL_ID: usize = 16 * 1024;

/// Whether answers can be matched by this id.
pub(crate) fn is_call_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_CALL_ID
}

/// What the model is shown of a tool's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolResult {
    /// The call that this answers.
    pub call_id: Arc<str>,
    /// The tool.
    pub name: Arc<str>,
    /// What the model reads.
    pub parts: Vec<Part>,
    /// Whether the tool failed.
    #[serde(default)]
    pub is_error: bool,
}

impl ToolResult {
    /// The answer to `call`.
    #[must_use]
    pub fn new(call: &ToolCall, parts: impl IntoIterator<Item = Part>) -> Self {
        Self {
            call_id: call.id.clone(),
            name: call.name.clone(),
            parts: parts.into_iter().collect(),
            is_error: false,
        }
    }

    /// The same answer, as a failure.
    #[must_use]
    pub fn failed(mut self) -> Self {
        self.is_error = true;
        self
    }

    /// All its text parts, joined.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts.iter().filter_map(Part::as_text).collect()
    }
}
