//! The open questions about a call, and the decisions.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::decision::Decision;
use crate::reveal::Reveals;
use tower_agent::call::Request;
use tower_agent::error::{Answerer, Error, Expiry, Interrupt, Resolution, ResolutionOutcome};
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
    /// The name of who has decided, if the server knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
}

impl Question {
    fn is_about(&self, request: &ToolRequest) -> bool {
        self.tool == request.name() && self.arguments == *request.arguments()
    }

    /// Returns whether somebody has approved a call with these arguments.
    fn approves(&self, arguments: &Value) -> bool {
        match &self.decision {
            Some(Decision::Approve) => self.arguments == *arguments,
            // The call that was edited comes again, with the person's own arguments: they were
            // approved with the edit.
            Some(Decision::Edit(edited)) => edited == arguments,
            Some(Decision::Reject { .. } | Decision::Respond(_)) | None => false,
        }
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

    /// Returns what was decided about this call with its current arguments, by as many people as
    /// it takes: for another attempt, by another approval around it, or before an interrupt of the
    /// tool itself.
    pub(super) fn decision(&self, request: &ToolRequest, people: usize) -> Option<Decision> {
        // The latest decision about these arguments counts.
        let latest = self.about(request).next()?;
        if !latest.approves(request.arguments()) {
            return latest.decision.clone();
        }
        // One is enough, whether the server knows who it was or not.
        let is_enough = people == 1 || self.approvers(request).len() >= people;
        is_enough.then_some(Decision::Approve)
    }

    /// Returns the names of those who have approved this call with its current arguments.
    pub(super) fn approvers(&self, request: &ToolRequest) -> Vec<String> {
        let mut names: Vec<_> = self
            .about(request)
            .take_while(|question| question.approves(request.arguments()))
            .filter_map(|question| question.by.clone())
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// Returns the decided questions to this approver about this call as it is, the latest first.
    fn about(&self, request: &ToolRequest) -> impl Iterator<Item = &Question> {
        let own = self.all.iter().rev();
        let decided = own.filter(|question| self.is_own(question) && question.decision.is_some());
        decided
            .filter(|question| question.is_about(request) || question.approves(request.arguments()))
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
    pub(super) fn resolution(&self, request: &ToolRequest) -> Option<Resolution> {
        let open = self.open().filter(|open| open.is_about(request))?;
        request.context().resolution(&open.id)
    }

    /// Stores the decision about this call.
    pub(super) fn decide(
        &mut self,
        request: &ToolRequest,
        decision: Decision,
        resolution: &Resolution,
    ) {
        let own = self.all.iter_mut().rev();
        let mut own = own.filter(|question| question.approver == *self.approver);
        if let Some(last) = own.next() {
            last.decision = Some(decision);
            last.by.clone_from(&resolution.by);
        }
        request.context().note_answer(resolution);
        self.store(request);
    }

    /// Returns the question about this call as it is now, whose answers have this schema. `except`
    /// are those who may not answer.
    pub(super) fn interrupt(
        &self,
        request: &ToolRequest,
        schema: Value,
        except: Option<Vec<String>>,
    ) -> Interrupt {
        // The question is about what the call has; only what the approver reads of it is revealed.
        let shown = Reveals::arguments(request, self.approver);
        let approvers = self.approvers(request).join(", ");
        let message = match &*approvers {
            "" => format!("`{}` needs your approval", request.name()),
            others => format!(
                "`{}` was approved by {others}, and needs the approval of somebody else",
                request.name()
            ),
        };
        let interrupt = Interrupt::new(self.name(request), "tool_call")
            .with_message(message)
            .with_response_schema(schema)
            .with_payload(json!({ "tool": request.name(), "arguments": shown }))
            .for_answerer(self.approver.clone());
        match except {
            Some(except) => interrupt.for_others_than(except),
            None => interrupt,
        }
    }

    /// Returns the error that asks this question about a call. `why` says what was wrong with the
    /// previous resolution.
    pub(super) fn ask(
        &mut self,
        request: &ToolRequest,
        interrupt: Interrupt,
        deny_after: Option<Duration>,
        why: Option<String>,
    ) -> Error {
        let interrupt = match why {
            Some(why) => interrupt.with_message(why),
            None => interrupt,
        };
        // A call that is asked about again has no more time, whatever its arguments are now, and
        // whether somebody has approved it meanwhile.
        let earlier = self.open().or(self.about(request).next());
        let interrupt = match earlier.map(|earlier| earlier.expiry.clone()) {
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
            tool: request.name().to_owned(),
            arguments: request.arguments().clone(),
            approver: self.approver.clone(),
            expiry: interrupt.expiry.clone(),
            decision: None,
            by: None,
        });
        self.store(request);
        Error::interrupt(interrupt)
    }

    fn store(&self, request: &ToolRequest) {
        request
            .context()
            .private_state()
            .set(&self.key, json!(self.all));
    }
}
