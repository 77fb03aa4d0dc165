use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::input::RunAgentInput;
use super::skip::{absent, count};

/// A run begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RunStarted {
    /// The conversation.
    pub thread_id: Arc<str>,
    /// The run.
    pub run_id: Arc<str>,
    /// The version of the protocol that is spoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<Arc<str>>,
    /// The run that this one branches from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<Arc<str>>,
    /// What the run was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<RunAgentInput>,
}

impl RunStarted {
    /// The run `run_id` of the conversation `thread_id` begins.
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

/// A run has ended well, waits for somebody, or was cancelled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RunFinished {
    /// The conversation.
    pub thread_id: Arc<str>,
    /// The run.
    pub run_id: Arc<str>,
    /// What it came to.
    #[serde(skip_serializing_if = "absent", default)]
    pub result: Option<Value>,
    /// How it ended; well, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
    /// The tokens it used, model by model.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub usage: Vec<TokenUsage>,
}

impl RunFinished {
    /// The run `run_id` of the conversation `thread_id` has ended well.
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

    /// The same with what it came to.
    #[must_use]
    pub fn with_result(mut self, result: Value) -> Self {
        self.result = Some(result);
        self
    }

    /// The same, ended in this way.
    #[must_use]
    pub fn with_outcome(mut self, outcome: RunOutcome) -> Self {
        self.outcome = Some(outcome);
        self
    }

    /// The same with the tokens it used.
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
    /// What happened, for people.
    pub message: String,
    /// What happened, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Arc<str>>,
    /// The tokens used until then, model by model.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub usage: Vec<TokenUsage>,
}

impl RunError {
    /// This has happened.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: None, usage: Vec::new() }
    }

    /// The same with a code for programs.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<Arc<str>>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// The same with the tokens used until then.
    #[must_use]
    pub fn with_usage(mut self, usage: impl IntoIterator<Item = TokenUsage>) -> Self {
        self.usage = usage.into_iter().collect();
        self
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum RunOutcome {
    /// Well.
    Success {
        /// The calls that the front end has to answer. Where there are none named, it takes
        /// those that the run began and did not answer.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        pending_tool_call_ids: Vec<Arc<str>>,
    },
    /// It waits for somebody, and can be resumed.
    Interrupt {
        /// What it waits for; at least one.
        interrupts: Vec<Interrupt>,
    },
    /// Somebody stopped it.
    Cancelled,
}

/// Something that a run waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Interrupt {
    /// Its name; the answer carries it.
    pub id: Arc<str>,
    /// Why: `tool_call`, `input_required`, `confirmation`, or one of the application's own, such
    /// as `myapp:review`.
    pub reason: Arc<str>,
    /// What to ask, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The tool call that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<Arc<str>>,
    /// The JSON schema of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Map<String, Value>>,
    /// Until when an answer counts, in ISO 8601.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Anything else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// The agent within the agent that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subagent_run_id: Option<Arc<str>>,
}

impl Interrupt {
    /// The interrupt `id`, for this reason.
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

/// The tokens that one model used. What is not known is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenUsage {
    /// Who runs the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<Arc<str>>,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// Tokens read, cached ones included.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "count")]
    pub input_tokens: Option<u64>,
    /// Tokens written, reasoning included.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "count")]
    pub output_tokens: Option<u64>,
    /// Both together.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "count")]
    pub total_tokens: Option<u64>,
    /// Of the tokens written, those spent on reasoning.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "count")]
    pub reasoning_tokens: Option<u64>,
    /// Of the tokens read, those served from a cache.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "count")]
    pub cached_input_tokens: Option<u64>,
    /// Of the tokens read, those written to a cache.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "count")]
    pub cache_write_input_tokens: Option<u64>,
}

impl From<tower_agent::message::Usage> for TokenUsage {
    fn from(usage: tower_agent::message::Usage) -> Self {
        let known = |tokens| (tokens > 0).then_some(tokens);
        Self {
            provider: None,
            model: None,
            input_tokens: Some(usage.input_tokens),
            output_tokens: Some(usage.output_tokens),
            total_tokens: Some(usage.total()),
            reasoning_tokens: known(usage.reasoning_tokens),
            cached_input_tokens: known(usage.cached_input_tokens),
            cache_write_input_tokens: known(usage.cache_write_tokens),
        }
    }
}

/// An agent within the agent begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SubagentStarted {
    /// Its run; a name that the run uses once.
    pub subagent_run_id: Arc<str>,
    /// The agent.
    pub name: Arc<str>,
    /// What the agent is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The agent within the agent that began it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_subagent_run_id: Option<Arc<str>>,
    /// The tool call that began it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_tool_call_id: Option<Arc<str>>,
    /// The message that began it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_message_id: Option<Arc<str>>,
}

impl SubagentStarted {
    /// The agent `name` begins.
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

/// How an agent within the agent ended, if it did not fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum SubagentOutcome {
    /// Well.
    Success,
    /// It waits for somebody.
    Suspended {
        /// What it waits for.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        interrupt_ids: Vec<Arc<str>>,
    },
}
