//! The open questions about a call, and the decisions.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::decision::Decision;
use crate::reveal::Reveals;
use tower_agent::call::Request;
use tower_agent::error::{
    Answerer, Error, Expiry, Interrupt, Resolution, ResolutionOutcome, Result,
};
use tower_agent::tool::ToolRequest;

/// The key of the stored questions, in the call.
const KEY: &str = "tower_agent.guard.approval";

/// The questions about one call, oldest first. They are kept with the conversation until the call
/// has a result. A decision covers only the question that it answers, and counts only for the
/// approver who was asked.
pub(super) struct Questions<'a> {
    key: String,
    approver: &'a Answerer,
    all: Vec<Question>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Question {
    /// The id of its interrupt.
    id: String,
    tool: String,
    arguments: Value,
    approver: Answerer,
    #[serde(deserialize_with = "Option::deserialize")]
    expiry: Option<Expiry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    decision: Option<Decision>,
}

impl Question {
    fn is_about(&self, request: &ToolRequest) -> bool {
        self.tool == request.name() && self.arguments == *request.arguments()
    }
}

impl<'a> Questions<'a> {
    pub(super) fn of(request: &ToolRequest, approver: &'a Answerer) -> Self {
        let key = request.context().call_key(KEY);
        let stored = request.context().private_state().get(&key);
        // A value that cannot be read counts as no questions.
        let all = stored
            .and_then(|stored| serde_json::from_value(stored).ok())
            .unwrap_or_default();
        Self { key, approver, all }
    }

    /// Returns the decision about this call with its current arguments, made for another attempt,
    /// by another approval around it, or before an interrupt of the tool itself.
    pub(super) fn decision(&self, request: &ToolRequest) -> Option<Decision> {
        self.all
            .iter()
            .filter(|question| self.is_own(question))
            // The latest decision about these arguments counts.
            .rev()
            .find_map(|question| match &question.decision {
                Some(decision) if question.is_about(request) => Some(decision.clone()),
                // The call that was edited comes again, with the person's own arguments: they were
                // approved with the edit.
                Some(Decision::Edit(edited)) if *edited == *request.arguments() => {
                    Some(Decision::Approve)
                }
                _ => None,
            })
    }

    /// Returns the question to this approver that has no decision yet.
    fn open(&self) -> Option<&Question> {
        let mut own = self
            .all
            .iter()
            .rev()
            .filter(|question| self.is_own(question));
        own.next().filter(|last| last.decision.is_none())
    }

    fn is_own(&self, question: &Question) -> bool {
        question.approver == *self.approver
    }

    /// Returns the name of the questions to this approver. Another approver has another: all that
    /// guard a call are asked at once, and an answer must not count for them all.
    fn name(&self, request: &ToolRequest) -> String {
        let call = request.context().call_path();
        match self.approver.role() {
            None => call,
            Some(role) => format!("{call} {role}"),
        }
    }

    /// Returns whether a question about this call is open.
    pub(super) fn is_open(&self) -> bool {
        self.open().is_some()
    }

    /// Returns the resolution of the last question, if the question was about the call as it is now
    /// and was asked in an earlier run.
    pub(super) fn resolution<'r>(&self, request: &'r ToolRequest) -> Option<&'r Resolution> {
        let open = self.open().filter(|open| open.is_about(request))?;
        request.context().resolution(&open.id)
    }

    /// Stores the decision about this call.
    pub(super) fn decide(&mut self, request: &ToolRequest, decision: &Decision) {
        let own = self.all.iter_mut().rev();
        let mut own = own.filter(|question| question.approver == *self.approver);
        if let Some(last) = own.next() {
            last.decision = Some(decision.clone());
        }
        self.store(request);
    }

    /// Returns the error that asks about this call. `why` says what was wrong with the previous
    /// resolution.
    pub(super) fn ask(
        &mut self,
        request: &ToolRequest,
        allows_edits: bool,
        deny_after: Option<Duration>,
        why: Option<String>,
    ) -> Result<Error> {
        let tool = request.name().to_owned();
        let arguments = request.arguments().clone();
        // The question is about what the call has; only what the approver reads of it is revealed.
        let shown = Reveals::arguments(request, self.approver);
        let payload = json!({ "tool": tool, "arguments": shown });
        let schema = Decision::schema_for(
            request.declaration().map(|tool| tool.parameters()),
            allows_edits,
        );
        let message = why.unwrap_or_else(|| format!("`{}` needs your approval", request.name()));
        let interrupt = Interrupt::new(self.name(request), "tool_call")
            .with_message(message)
            .with_response_schema(schema)
            .with_payload(payload)
            .for_answerer(self.approver.clone());
        let first = self.open().map(|earlier| earlier.expiry.clone());
        let interrupt = match first {
            // A call that is asked about again has no more time, whatever its arguments are now.
            Some(first) => interrupt.with_expiry_of(first),
            None => {
                let at = deny_after.and_then(|time| SystemTime::now().checked_add(time));
                let denial = Decision::reject("nobody answered in time");
                let denial = ResolutionOutcome::Resolved(denial.into());
                interrupt.with_expiry_of(at.map(|at| Expiry::new(at, denial)))
            }
        };
        // One question of an approver about a call is open at a time.
        let approver = self.approver;
        self.all
            .retain(|question| question.decision.is_some() || question.approver != *approver);
        self.all.push(Question {
            id: interrupt.id.clone(),
            tool,
            arguments,
            approver: self.approver.clone(),
            expiry: interrupt.expiry.clone(),
            decision: None,
        });
        self.store(request);
        Ok(Error::interrupt(interrupt))
    }

    fn store(&self, request: &ToolRequest) {
        request
            .context()
            .private_state()
            .set(&self.key, json!(self.all));
    }
}
