//! The open questions about a call, and the decisions.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::decision::Decision;
use tower_agent::call::Request;
use tower_agent::error::{Error, Interrupt, Resolution, Result};
use tower_agent::tool::ToolRequest;

/// The key of the stored questions, in the call and in the run.
const KEY: &str = "tower_agent.guard.approval";

/// The questions about one call, oldest first. They are kept with the conversation until the call
/// has a result. A decision covers only the question that it answers.
pub(super) struct Questions {
    key: String,
    asked: Vec<Asked>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Asked {
    tool: String,
    arguments: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    decision: Option<Decision>,
}

impl Asked {
    fn is_about(&self, request: &ToolRequest) -> bool {
        self.tool == request.name() && self.arguments == *request.arguments()
    }
}

impl Questions {
    pub(super) fn of(request: &ToolRequest) -> Self {
        let key = request.context().call_key(KEY);
        let kept = request.context().private_state().get(&key);
        // A value that cannot be read counts as no questions.
        let asked = kept
            .and_then(|kept| serde_json::from_value(kept).ok())
            .unwrap_or_default();
        Self { key, asked }
    }

    /// Returns the decision about this call with its current arguments, made for another attempt,
    /// by another approval around it, or before an interrupt of the tool itself.
    pub(super) fn decision(&self, request: &ToolRequest) -> Option<Decision> {
        self.asked
            .iter()
            .rev()
            .find_map(|asked| match &asked.decision {
                Some(decision) if asked.is_about(request) => Some(decision.clone()),
                Some(Decision::Edit(edited)) if *edited == *request.arguments() => {
                    Some(Decision::Approve)
                }
                _ => None,
            })
    }

    /// Returns whether a question about this call is open.
    pub(super) fn is_open(&self) -> bool {
        self.asked
            .last()
            .is_some_and(|last| last.decision.is_none())
    }

    /// Returns the resolution of the last question, if the question was about the call as it is now
    /// and was asked in an earlier run.
    pub(super) fn resolution<'a>(&self, request: &'a ToolRequest) -> Option<&'a Resolution> {
        let context = request.context();
        let id = context.call_path();
        let last = self.asked.last()?;
        let is_open = last.decision.is_none() && last.is_about(request);
        let is_new = |asked: &mut HashSet<String>| asked.contains(&id);
        if !is_open || context.values().update(KEY, is_new).unwrap_or(true) {
            return None;
        }
        context.resolution(&id)
    }

    /// Stores the decision about this call.
    pub(super) fn decide(&mut self, request: &ToolRequest, decision: &Decision) {
        if let Some(last) = self.asked.last_mut() {
            last.decision = Some(decision.clone());
        }
        self.keep(request);
    }

    /// Returns the error that asks about this call. `why` says what was wrong with the previous
    /// resolution.
    pub(super) fn ask(
        &mut self,
        request: &ToolRequest,
        allows_edits: bool,
        why: Option<String>,
    ) -> Result<Error> {
        let context = request.context();
        let id = context.call_path();
        context
            .values()
            .update(KEY, |asked: &mut HashSet<String>| asked.insert(id.clone()))?;
        let tool = request.name().to_owned();
        let arguments = request.arguments().clone();
        let payload = json!({ "tool": tool, "arguments": arguments });
        self.asked.retain(|asked| asked.decision.is_some());
        self.asked.push(Asked {
            tool,
            arguments,
            decision: None,
        });
        self.keep(request);

        let schema = Decision::schema_for(
            request.declaration().map(|tool| tool.parameters()),
            allows_edits,
        );
        let message = why.unwrap_or_else(|| format!("`{}` needs your approval", request.name()));
        Ok(Error::interrupt(
            Interrupt::new(id, "tool_call")
                .with_message(message)
                .with_response_schema(schema)
                .with_payload(payload),
        ))
    }

    fn keep(&self, request: &ToolRequest) {
        request
            .context()
            .private_state()
            .set(&self.key, json!(self.asked));
    }
}
