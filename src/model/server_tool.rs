use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::message::ProviderData;

/// A tool that the provider runs itself, beside the tools of the agent.
///
/// Its calls and results are parts of the model's message, and no callback of tools sees them. A
/// provider that does not have the tool fails the call with
/// [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
///
/// ```
/// use serde_json::json;
/// use tower_agent::Settings;
/// use tower_agent::model::ServerTool;
///
/// let search = ServerTool::web_search().with("anthropic", json!({ "max_uses": 3 }));
/// let mut settings = Settings::default();
/// settings.server_tools = vec![search, ServerTool::code_execution()];
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
#[must_use]
pub struct ServerTool {
    /// The kind of the tool.
    pub kind: ServerToolKind,
    /// The fields of the tool that are specific to a provider, by the provider's key. They are
    /// added to its own and replace those of the same name.
    #[serde(default, skip_serializing_if = "ProviderData::is_empty")]
    pub provider: ProviderData,
}

/// The kind of a [`ServerTool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ServerToolKind {
    /// Searches the web.
    WebSearch,
    /// Reads the pages whose URLs are in the conversation.
    WebFetch,
    /// Runs code that the model writes.
    CodeExecution,
    /// Another tool of one provider, which its fields describe.
    Other,
}

impl ServerTool {
    /// Creates a tool that searches the web.
    pub fn web_search() -> Self {
        Self::of(ServerToolKind::WebSearch)
    }

    /// Creates a tool that reads the pages whose URLs are in the conversation.
    pub fn web_fetch() -> Self {
        Self::of(ServerToolKind::WebFetch)
    }

    /// Creates a tool that runs code that the model writes.
    pub fn code_execution() -> Self {
        Self::of(ServerToolKind::CodeExecution)
    }

    /// Creates another tool of a provider, as its protocol has it.
    pub fn other(provider: impl Into<String>, tool: Value) -> Self {
        Self::of(ServerToolKind::Other).with(provider, tool)
    }

    /// Sets the fields that are specific to a provider.
    pub fn with(mut self, provider: impl Into<String>, fields: Value) -> Self {
        self.provider.set(provider, fields);
        self
    }

    /// Returns the tool as the protocol of a provider has it, from the form without further fields.
    /// A provider without such a tool passes `None`; then there is only a tool that is described
    /// for it.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::model::ServerTool;
    ///
    /// let search = ServerTool::web_search().with("mine", json!({ "max": 3 }));
    /// let tool = search.for_provider("mine", Some(json!({ "type": "search" })));
    /// assert_eq!(tool, Some(json!({ "type": "search", "max": 3 })));
    /// assert_eq!(search.for_provider("another", None), None);
    /// ```
    #[must_use]
    pub fn for_provider(&self, provider: &str, plain: Option<Value>) -> Option<Value> {
        let fields = self.provider.get(provider).and_then(Value::as_object);
        let mut tool = match (plain, self.kind) {
            (Some(Value::Object(plain)), _) => plain,
            (_, ServerToolKind::Other) => Map::new(),
            (plain, _) => return plain,
        };
        tool.extend(fields.cloned().unwrap_or_default());
        (!tool.is_empty()).then_some(Value::Object(tool))
    }

    fn of(kind: ServerToolKind) -> Self {
        Self {
            kind,
            provider: ProviderData::default(),
        }
    }
}

impl ServerToolKind {
    /// Returns the name of the kind, such as `web_search`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WebSearch => "web_search",
            Self::WebFetch => "web_fetch",
            Self::CodeExecution => "code_execution",
            Self::Other => "other",
        }
    }
}
