use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::arguments::Arguments;
use super::provider_data::ProviderData;

/// A tool call of the model. Cloning is O(1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
#[must_use]
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
    pub fn new(
        id: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
        arguments: impl Into<Arguments>,
    ) -> Self {
        let id = id.into();
        let name = name.into();
        let arguments = arguments.into();
        Self {
            id,
            name,
            arguments,
            provider: ProviderData::default(),
        }
    }

    /// Creates a call with the model's own [text](Arguments::from_text) as arguments.
    pub fn from_text(
        id: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
        arguments: impl Into<String>,
    ) -> Self {
        Self::new(id, name, Arguments::from_text(arguments))
    }
}
