//! The answer to the question about a tool call that may have been made.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower_agent::{Action, Callback, Error, ErrorKind, ToolRequest, ToolResponse};

/// The answer to the question about a tool call that may have been made, for the
/// [`Resolution`](tower_agent::Resolution) of its interrupt.
///
/// ```
/// use serde_json::json;
/// use tower_agent::{Interrupt, Resolution};
/// use tower_agent_durable::journal::UnfinishedStep;
///
/// fn was_paid(question: &Interrupt) -> Resolution {
///     assert_eq!(question.reason, UnfinishedStep::REASON);
///     Resolution::resolved(&question.id, UnfinishedStep::Done(json!("paid")))
/// }
/// # drop(was_paid);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UnfinishedStep {
    /// It was done, and returned this. Its changes of the run's state are lost.
    Done(Value),
    /// It failed; the model reads why.
    Failed(String),
    /// It was not done: call the tool, with the same
    /// [key](tower_agent::ToolRequest::idempotency_key). Only if the process has stopped: otherwise
    /// it may be about to make the call.
    RunAgain,
}

impl UnfinishedStep {
    /// The [`reason`](tower_agent::Interrupt::reason) of the interrupts that ask.
    pub const REASON: &str = "unfinished_step";
    /// The [role](tower_agent::Interrupt::for_role) of those who answer.
    pub const ROLE: &str = "operator";

    pub(super) fn schema() -> Value {
        json!({
            "oneOf": [
                { "type": "object", "properties": { "done": {} }, "required": ["done"] },
                {
                    "type": "object",
                    "properties": { "failed": { "type": "string" } },
                    "required": ["failed"],
                },
                { "const": "run_again" },
            ],
        })
    }
}

impl From<UnfinishedStep> for Value {
    fn from(answer: UnfinishedStep) -> Self {
        match answer {
            UnfinishedStep::Done(value) => json!({ "done": value }),
            UnfinishedStep::Failed(why) => json!({ "failed": why }),
            UnfinishedStep::RunAgain => json!("run_again"),
        }
    }
}

/// Directly around the tools: answers a call that was made before, so that everything around it
/// sees its response.
#[derive(Clone, Copy)]
pub(super) struct AnswerUnfinished;

impl Callback<ToolRequest> for AnswerUnfinished {
    async fn before(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>, Error> {
        match request.extensions().get::<UnfinishedStep>() {
            // The journal has begun another attempt, so the tool is called as usual.
            None | Some(UnfinishedStep::RunAgain) => Ok(Action::Continue),
            Some(UnfinishedStep::Done(value)) => {
                Ok(Action::Respond(ToolResponse::new(value.clone())))
            }
            Some(UnfinishedStep::Failed(why)) => Err(Error::new(ErrorKind::Tool, why.clone())),
        }
    }

    fn is_guard(&self) -> bool {
        true
    }
}
