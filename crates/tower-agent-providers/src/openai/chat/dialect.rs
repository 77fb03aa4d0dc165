use crate::protocol::{Call, schema_of, takes_answer_tool};
use tower_agent::model::Settings;

/// The differences of a server of chat completions, or of a model on it, from others.
///
/// The [table](super::Dialects) has those of known hosts. The default is that of an unknown server,
/// such as vLLM, llama.cpp or LM Studio.
///
/// Differences in what servers *send* need no setting: each form is read.
///
/// ```
/// # #[cfg(feature = "http-client")] {
/// use tower_agent_providers::openai::{Dialect, OpenAi, ReasoningField};
///
/// let mut dialect = Dialect::default();
/// dialect.reasoning = ReasoningField::Reasoning;
/// let model = OpenAi::builder()
///     .base_url("http://127.0.0.1:11434/v1")
///     .model("qwen3")
///     .dialects(dialect)
///     .build();
/// assert!(model.is_ok());
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dialect {
    /// The field in which reasoning is sent back that came from a server of this protocol. Defaults
    /// to [`AsReceived`](ReasoningField::AsReceived).
    pub reasoning: ReasoningField,
    /// Every message of the model needs a [`reasoning`](Self::reasoning) field; a space stands in
    /// one of a message without reasoning, such as that of another model. A request that turns
    /// thinking off needs none. Defaults to `false`.
    pub requires_reasoning: bool,
    /// The field of [`max_tokens`](tower_agent::Settings::max_tokens). Defaults to
    /// [`MaxTokens`](LimitField::MaxTokens).
    pub limit: LimitField,
    /// The requests in which a schema is accepted as the response format. Defaults to
    /// [`Always`](SchemaSupport::Always).
    pub schemas: SchemaSupport,
    /// Schemas are written in the words of OpenAPI 3.0: `nullable` in place of the type `null`,
    /// lists with items, and what is referred to where it is. Defaults to `false`: any JSON Schema.
    pub open_api_schemas: bool,
    /// A [tool choice](tower_agent::model::ToolChoice) may force a call. If it may not, a request
    /// that does is an `InvalidRequest` error. Defaults to `true`.
    pub forced_tool_choice: bool,
}

/// The field in which a model's reasoning is sent back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningField {
    /// Reasoning is not sent back.
    None,
    /// The field in which the server sent it: `reasoning_content`, or `reasoning` if it sent only
    /// that, as Ollama does and vLLM since version 0.11; and its `reasoning_details`, if it sent
    /// some, as a gateway before OpenRouter does.
    AsReceived,
    /// The same of a message that has `reasoning_details`, and otherwise nothing: a gateway before
    /// OpenAI, which takes no text of reasoning.
    DetailsAsReceived,
    /// The message's `reasoning_content`, also for what came from another server.
    ReasoningContent,
    /// The message's `reasoning`: Cerebras, Together, Ollama.
    Reasoning,
    /// The message's `reasoning_details` as it came, with signatures and encrypted reasoning, or
    /// else its `reasoning`: OpenRouter, Snowflake.
    ReasoningDetails,
    /// Chunks of the type `thinking` in the message's `content`: Mistral.
    Content,
}

/// The field of the limit of output tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitField {
    /// `max_tokens`, the older name, which most servers know.
    MaxTokens,
    /// `max_completion_tokens`, which newer models of OpenAI require.
    MaxCompletionTokens,
}

/// The requests in which a server accepts a JSON schema as the response format.
///
/// Where it does not, a tool gives the answer; where no call can be
/// [forced](Dialect::forced_tool_choice), the schema stands in the instructions, and the response
/// format is JSON unless the request has tools, which some servers reject together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaSupport {
    /// With tools and without.
    Always,
    /// In a request without tools.
    WithoutTools,
    /// In no request.
    Never,
}

impl Dialect {
    /// Creates the dialect of an unknown server.
    pub(super) const fn new() -> Self {
        Self {
            reasoning: ReasoningField::AsReceived,
            requires_reasoning: false,
            limit: LimitField::MaxTokens,
            schemas: SchemaSupport::Always,
            open_api_schemas: false,
            forced_tool_choice: true,
        }
    }

    /// Returns why the schema of a call stands in the instructions, if it does.
    pub(super) fn describes_schema(&self, call: &Call<'_>) -> Option<&'static str> {
        let is_by_tool = self.answer_tool(call).is_some();
        self.rejects_schema(call).filter(|_| !is_by_tool)
    }

    /// Returns why a tool gives the answer of a call, if it does.
    pub(super) fn answer_tool(&self, call: &Call<'_>) -> Option<&'static str> {
        let can_be_forced = self.forced_tool_choice && takes_answer_tool(call);
        self.rejects_schema(call).filter(|_| can_be_forced)
    }

    /// Returns why the schema of a call is not accepted as the response format, if it is not.
    fn rejects_schema(&self, call: &Call<'_>) -> Option<&'static str> {
        schema_of(call)?;
        let has_tools = !call.request().tools().is_empty();
        match self.schemas {
            SchemaSupport::WithoutTools if has_tools => {
                Some("the server takes no schema beside tools")
            }
            SchemaSupport::Always | SchemaSupport::WithoutTools => None,
            SchemaSupport::Never => Some("the server takes no schema"),
        }
    }

    /// Returns the dialect of a request with these settings.
    pub(super) fn with(mut self, settings: &Settings) -> Self {
        let thinking = settings.extra.get("thinking");
        let is_off = thinking.is_some_and(|thinking| thinking["type"] == "disabled");
        self.requires_reasoning &= !is_off;
        self
    }

    /// Returns the name of the format in which tools are cached: that of the messages, so that the
    /// room for both is reserved at once, unless the schemas have a form of their own.
    pub(super) fn tool_format(&self) -> &'static str {
        if self.open_api_schemas {
            "tower_agent_providers.openai.chat/open_api"
        } else {
            self.format()
        }
    }

    /// Returns the name of the format in which messages are cached: one for each way of writing
    /// them.
    pub(super) fn format(&self) -> &'static str {
        match (self.reasoning, self.requires_reasoning) {
            (ReasoningField::None, _) => "tower_agent_providers.openai.chat",
            (ReasoningField::AsReceived, false) => "tower_agent_providers.openai.chat/received",
            (ReasoningField::AsReceived, true) => "tower_agent_providers.openai.chat/received!",
            (ReasoningField::DetailsAsReceived, _) => {
                "tower_agent_providers.openai.chat/details_received"
            }
            (ReasoningField::ReasoningContent, false) => {
                "tower_agent_providers.openai.chat/reasoning_content"
            }
            (ReasoningField::ReasoningContent, true) => {
                "tower_agent_providers.openai.chat/reasoning_content!"
            }
            (ReasoningField::Reasoning, false) => "tower_agent_providers.openai.chat/reasoning",
            (ReasoningField::Reasoning, true) => "tower_agent_providers.openai.chat/reasoning!",
            (ReasoningField::ReasoningDetails, false) => {
                "tower_agent_providers.openai.chat/reasoning_details"
            }
            (ReasoningField::ReasoningDetails, true) => {
                "tower_agent_providers.openai.chat/reasoning_details!"
            }
            (ReasoningField::Content, _) => "tower_agent_providers.openai.chat/content",
        }
    }
}

impl Default for Dialect {
    fn default() -> Self {
        Self::new()
    }
}

impl LimitField {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}
