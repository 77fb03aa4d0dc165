use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::input::RunAgentInput;
use super::skip::{absent, count};

/// A run starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RunStarted {
    /// The thread's id.
    pub thread_id: Arc<str>,
    /// The run's id.
    pub run_id: Arc<str>,
    /// The protocol version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<Arc<str>>,
    /// The run that this one branches from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<Arc<str>>,
    /// The input of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<RunAgentInput>,
}

impl RunStarted {
    /// Creates the start of the run `run_id` of the thread `thread_id`.
    #[must_use]
    pub fn new(thread_id: impl Into<Arc<str>>, run_id: impl Into<Arc<str>>) -> Self {
        Self {
            thread_id: thread_id.into(),
            run_id: run_id.into(),
            protocol_version: None,
            parent_run_id: None,
            input: None,
        }
    }
}

/// A run has completed, was interrupted or was cancelled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RunFinished {
    /// The thread's id.
    pub thread_id: Arc<str>,
    /// The run's id.
    pub run_id: Arc<str>,
    /// The result.
    #[serde(skip_serializing_if = "absent", default)]
    pub result: Option<Value>,
    /// The outcome. Defaults to success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
    /// The token usage, for each model.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub usage: Vec<TokenUsage>,
}

impl RunFinished {
    /// Creates the successful end of the run `run_id` of the thread `thread_id`.
    #[must_use]
    pub fn new(thread_id: impl Into<Arc<str>>, run_id: impl Into<Arc<str>>) -> Self {
        Self {
            thread_id: thread_id.into(),
            run_id: run_id.into(),
            result: None,
            outcome: None,
            usage: Vec::new(),
        }
    }

    /// Sets the result.
    #[must_use]
    pub fn with_result(mut self, result: Value) -> Self {
        self.result = Some(result);
        self
    }

    /// Sets how it ended.
    #[must_use]
    pub fn with_outcome(mut self, outcome: RunOutcome) -> Self {
        self.outcome = Some(outcome);
        self
    }

    /// Sets the token usage.
    #[must_use]
    pub fn with_usage(mut self, usage: impl IntoIterator<Item = TokenUsage>) -> Self {
        self.usage = usage.into_iter().collect();
        self
    }
}

/// A run has failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RunError {
    /// The message, for people.
    pub message: String,
    /// The code, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Arc<str>>,
    /// The token usage so far, for each model.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub usage: Vec<TokenUsage>,
}

impl RunError {
    /// Creates an error with this message.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            code: None,
            usage: Vec::new(),
        }
    }

    /// Sets the code for programs.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<Arc<str>>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Sets the token usage so far.
    #[must_use]
    pub fn with_usage(mut self, usage: impl IntoIterator<Item = TokenUsage>) -> Self {
        self.usage = usage.into_iter().collect();
        self
    }
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
#[non_exhaustive]
pub enum RunOutcome {
    /// It completed.
    Success {
        /// The calls that the client has to answer. If empty, the client takes the calls of the run
        /// without a result.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        pending_tool_call_ids: Vec<Arc<str>>,
    },
    /// It waits for input and can be resumed.
    Interrupt {
        /// The interrupts; at least one.
        interrupts: Vec<Interrupt>,
    },
    /// It was cancelled.
    Cancelled,
}

/// An interrupt of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Interrupt {
    /// Its id; the answer refers to it.
    pub id: Arc<str>,
    /// The reason: `tool_call`, `input_required`, `confirmation`, or one of the application's own,
    /// such as `myapp:review`.
    pub reason: Arc<str>,
    /// The question, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The tool call that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<Arc<str>>,
    /// The JSON Schema of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Map<String, Value>>,
    /// The time at which the interrupt expires, in ISO 8601.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Further data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// The id of the subagent that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subagent_run_id: Option<Arc<str>>,
}

impl Interrupt {
    /// Creates the interrupt `id` with this reason.
    #[must_use]
    pub fn new(id: impl Into<Arc<str>>, reason: impl Into<Arc<str>>) -> Self {
        Self {
            id: id.into(),
            reason: reason.into(),
            message: None,
            tool_call_id: None,
            response_schema: None,
            expires_at: None,
            metadata: None,
            subagent_run_id: None,
        }
    }
}

/// The token usage of one model. Unknown fields are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenUsage {
    /// The provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<Arc<str>>,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// Input tokens, cached ones included.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "count")]
    pub input_tokens: Option<u64>,
    /// Output tokens, reasoning included.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "count")]
    pub output_tokens: Option<u64>,
    /// Input and output tokens.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "count")]
    pub total_tokens: Option<u64>,
    /// The output tokens spent on reasoning.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "count")]
    pub reasoning_tokens: Option<u64>,
    /// The input tokens read from a cache.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "count")]
    pub cached_input_tokens: Option<u64>,
    /// The input tokens written to a cache.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "count")]
    pub cache_write_input_tokens: Option<u64>,
}

impl From<tower_agent::message::Usage> for TokenUsage {
    fn from(usage: tower_agent::message::Usage) -> Self {
        Self {
            provider: None,
            model: None,
            input_tokens: Some(usage.input_tokens),
            output_tokens: Some(usage.output_tokens),
            total_tokens: Some(usage.total()),
            reasoning_tokens: nonzero(usage.reasoning_tokens),
            cached_input_tokens: nonzero(usage.cached_input_tokens),
            cache_write_input_tokens: nonzero(usage.cache_write_tokens),
        }
    }
}

/// Returns the count unless it is zero, since a provider that does not report a count leaves it
/// zero.
fn nonzero(tokens: u64) -> Option<u64> {
    (tokens > 0).then_some(tokens)
}

/// A subagent starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SubagentStarted {
    /// The id of its run, unique in the parent run.
    pub subagent_run_id: Arc<str>,
    /// The agent's name.
    pub name: Arc<str>,
    /// The agent's description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The subagent that started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_subagent_run_id: Option<Arc<str>>,
    /// The tool call that started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_tool_call_id: Option<Arc<str>>,
    /// The message that started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_message_id: Option<Arc<str>>,
}

impl SubagentStarted {
    /// Creates the start of the agent `name`.
    #[must_use]
    pub fn new(subagent_run_id: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            subagent_run_id: subagent_run_id.into(),
            name: name.into(),
            description: None,
            parent_subagent_run_id: None,
            parent_tool_call_id: None,
            parent_message_id: None,
        }
    }
}

/// The outcome of a subagent that did not fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
#[non_exhaustive]
pub enum SubagentOutcome {
    /// It completed.
    Success,
    /// It was interrupted.
    Suspended {
        /// The ids of its interrupts.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        interrupt_ids: Vec<Arc<str>>,
    },
}
