//! The question about a tool call that may have been made.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower_agent::context::Effects;
use tower_agent::error::ResolutionOutcome;
use tower_agent::{Action, Callback, Error, ErrorKind, Interrupt, ToolRequest, ToolResponse};

use super::record::Outcome;
use super::step_request::StepRequest;
use super::{Begun, Fingerprint, Intent, Journal, JournalError, Lease, Record, StepId, StepKind};
use crate::StoreError;

/// The name of the value that is the answer about a call.
const KEPT: &str = "tower_agent_durable.unfinished";

/// The answer to the question about a tool call that may have been made, for the
/// [`Resolution`](tower_agent::Resolution) of its interrupt.
///
/// ```
/// use serde_json::json;
/// use tower_agent::Resolution;
/// use tower_agent_durable::journal::Unfinished;
///
/// let paid = Resolution::resolved("unfinished agent/call_1 1", Unfinished::Done(json!("paid")));
/// # drop(paid);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unfinished {
    /// It was done, and has returned this. What it has changed in the run's state is lost.
    Done(Value),
    /// It has failed; the model reads why.
    Failed(String),
    /// It was not done: make it, under the same
    /// [key](tower_agent::ToolRequest::idempotency_key). Only for a process that has stopped: one that
    /// goes on may be about to make it.
    RunAgain,
}

impl Unfinished {
    /// The [`reason`](Interrupt::reason) of the interrupts that ask.
    pub const REASON: &str = "unfinished_step";

    fn schema() -> Value {
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

impl From<Unfinished> for Value {
    fn from(answer: Unfinished) -> Self {
        match answer {
            Unfinished::Done(value) => json!({ "done": value }),
            Unfinished::Failed(why) => json!({ "failed": why }),
            Unfinished::RunAgain => json!("run_again"),
        }
    }
}

/// Returns what is known about an unfinished call, or the error that asks. That it was made is kept,
/// since the next request of the run need not say it again.
pub(super) async fn answer<R: StepRequest>(
    journal: &impl Journal,
    request: &R,
    lease: &Lease,
) -> Result<Unfinished, Error> {
    let answer = decide(request, lease);
    if matches!(answer, Ok(Unfinished::RunAgain)) {
        return answer;
    }
    let kind = StepKind::Value(KEPT.into());
    let step = StepId { kind, nth: lease.attempt, ..lease.step.clone() };
    let intent = Intent { fingerprint: Fingerprint::default(), is_repeatable: true };
    match (journal.begin(&lease.run, &step, &intent).await?, answer) {
        (Begun::Done(_, Record { outcome: Outcome::Response(kept), .. }), _) => {
            let kept = serde_json::from_value(kept).map_err(StoreError::data);
            Ok(kept.map_err(JournalError::from)?)
        }
        (Begun::Done(_, Record { outcome: Outcome::Error(error), .. }), _) => Err(error),
        (Begun::Fresh(lease) | Begun::Unfinished(lease, _), Ok(known)) => {
            let kept = Outcome::Response(known.clone().into());
            journal.commit(&lease, &Record::new(kept, Effects::default(), None)).await?;
            Ok(known)
        }
        (Begun::Fresh(lease) | Begun::Unfinished(lease, _), Err(question)) => {
            journal.release(&lease).await?;
            Err(question)
        }
    }
}

fn decide<R: StepRequest>(request: &R, lease: &Lease) -> Result<Unfinished, Error> {
    let Some(resolution) = request.context().resolution(&id(lease)) else {
        return Err(ask(request, lease, None));
    };
    match &resolution.outcome {
        ResolutionOutcome::Resolved(answer) => serde_json::from_value(answer.clone())
            .map_err(|error| ask(request, lease, Some(error.to_string()))),
        ResolutionOutcome::Cancelled => {
            let why = "stopped while it was running; its outcome is unknown";
            Ok(Unfinished::Failed(why.to_owned()))
        }
        _ => Err(ask(request, lease, None)),
    }
}

/// Directly around the tools: answers a call that was made before, so that everything around it sees
/// its response.
#[derive(Clone, Copy)]
pub(super) struct AnswerUnfinished;

impl Callback<ToolRequest> for AnswerUnfinished {
    async fn before(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>, Error> {
        match request.extensions().get::<Unfinished>() {
            None | Some(Unfinished::RunAgain) => Ok(Action::Continue),
            Some(Unfinished::Done(value)) => Ok(Action::Respond(ToolResponse::new(value.clone()))),
            Some(Unfinished::Failed(why)) => Err(Error::new(ErrorKind::Tool, why.clone())),
        }
    }

    fn is_guard(&self) -> bool {
        true
    }
}

/// An answer is about one attempt.
fn id(lease: &Lease) -> String {
    format!("unfinished {} {}", lease.step.path, lease.attempt)
}

/// Returns the path of the call that an interrupt asks about.
#[cfg(any(feature = "postgres", feature = "restate", feature = "sqlite"))]
pub(super) fn path_of(interrupt: &Interrupt) -> Option<&str> {
    let is_ours = interrupt.reason == Unfinished::REASON;
    let rest = interrupt.id.strip_prefix("unfinished ").filter(|_| is_ours)?;
    Some(rest.rsplit_once(' ')?.0)
}

/// Returns the error that asks. `why` says what was wrong with an answer.
pub(super) fn ask<R: StepRequest>(request: &R, lease: &Lease, why: Option<String>) -> Error {
    let what = request.name().unwrap_or_default();
    let message = why.unwrap_or_else(|| {
        format!("`{what}` was running when the run stopped, and may have been done")
    });
    Error::interrupt(
        Interrupt::new(id(lease), Unfinished::REASON)
            .with_message(message)
            .with_response_schema(Unfinished::schema())
            .with_payload(request.subject()),
    )
}
