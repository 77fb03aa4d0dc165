//! The question about a tool call that may have been made.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tower_agent::call::CallKind;
use tower_agent::error::ResolutionOutcome;
use tower_agent::{Error, Interrupt};

use super::error::JournalError;
use super::fingerprint::Fingerprint;
use super::intent::Intent;
use super::journal::StepLease;
use super::step_request::StepRequest;
use super::unfinished::UnfinishedStep;
use tower_agent_conversations::StoreError;

/// The key of the stored question, in the call.
const KEY: &str = "tower_agent_durable.unfinished";

/// The name under which the call is held open.
const GUARD: &str = "Durable";

/// The question about one attempt of a tool call, and its answer. It is kept with the conversation
/// until the call has a result, so that no run of the conversation makes the call without an
/// answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Question {
    /// The id of the interrupt that asked last.
    #[serde(default)]
    asked: String,
    /// The run of the attempt.
    run: Arc<str>,
    /// The number of the last attempt in earlier runs.
    earlier: u32,
    /// The number of the attempt in its run, from 1.
    attempt: u32,
    fingerprint: Fingerprint,
    idempotency_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<UnfinishedStep>,
}

impl Question {
    /// Returns the stored question about this call, if there is one.
    pub(super) fn stored<R: StepRequest>(request: &R) -> Result<Option<Self>, JournalError> {
        let private = request.context().private_state();
        // Usually nothing is stored, and every call checks this.
        if R::CALL != CallKind::Tool || private.is_empty() {
            return Ok(None);
        }
        let Some(question) = private.get(&key(request)) else {
            return Ok(None);
        };
        Ok(Some(
            serde_json::from_value(question).map_err(StoreError::data)?,
        ))
    }

    /// Returns the question about this attempt. `earlier` is the number of the last attempt in
    /// [earlier runs](Self::number_before).
    pub(super) fn about<R: StepRequest>(
        request: &R,
        earlier: u32,
        lease: &StepLease,
        intent: &Intent,
    ) -> Self {
        Self {
            asked: String::new(),
            run: lease.run.id.clone(),
            earlier,
            attempt: lease.attempt,
            fingerprint: intent.fingerprint.clone(),
            idempotency_key: request.key(),
            answer: None,
        }
    }

    /// Returns the number of the last attempt before this run.
    pub(super) fn number_before(&self, run: &str) -> u32 {
        // A run counts its attempts from 1, and so does a later run of the same conversation: its
        // numbers continue those of the run that asked.
        if *self.run == *run {
            self.earlier
        } else {
            self.number()
        }
    }

    /// Returns the number of the attempt among all of the call.
    pub(super) fn number(&self) -> u32 {
        self.earlier.saturating_add(self.attempt)
    }

    /// Notes that another attempt was begun after the answer, and forgotten by the journal without
    /// a call. The next has a higher number than both, so that this answer is not taken for it.
    pub(super) fn pass<R: StepRequest>(mut self, request: &R, lease: &StepLease) {
        let forgotten = self.number_before(&lease.run.id) + lease.attempt;
        self.earlier = self.number().max(forgotten);
        self.attempt = 0;
        self.run = lease.run.id.clone();
        self.store(request);
    }

    /// Returns the key of the attempt for the service that the tool calls.
    pub(super) fn idempotency_key(&self) -> &str {
        &self.idempotency_key
    }

    /// Returns the fingerprint of the call.
    pub(super) fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// Returns the answer, or the error that asks.
    pub(super) fn answer<R: StepRequest>(&mut self, request: &R) -> Result<UnfinishedStep, Error> {
        if let Some(answer) = &self.answer {
            return Ok(answer.clone());
        }
        let resolution = request.context().resolution(&self.asked);
        let answer = match resolution.as_ref().map(|resolution| &resolution.outcome) {
            Some(ResolutionOutcome::Resolved(answer)) => {
                // The answer comes from outside. One that does not fit the schema is asked for
                // again, with the reason, since the call must not be made or skipped by a guess.
                let answer = serde_json::from_value(answer.clone());
                answer.map_err(|error| self.ask(request, Some(error.to_string())))?
            }
            Some(ResolutionOutcome::Cancelled) => {
                let why = "stopped while it was running; its outcome is unknown";
                UnfinishedStep::Failed(why.to_owned())
            }
            _ => return Err(self.ask(request, None)),
        };
        if let Some(resolution) = &resolution {
            request.context().note_answer(resolution);
        }
        // Kept at once: the run may be interrupted by another call before this one has a result,
        // and the next request then does not carry the resolution again.
        self.answer = Some(answer.clone());
        self.store(request);
        if answer == UnfinishedStep::RunAgain {
            request.context().release_call(GUARD);
        }
        Ok(answer)
    }

    /// Returns the interrupt that asks. `why` is the error in an answer, if there was one.
    pub(super) fn ask<R: StepRequest>(&mut self, request: &R, why: Option<String>) -> Error {
        // An agent without a journal that resumes the conversation must not make the call either.
        request.context().hold_call(GUARD);
        let name = request.name().unwrap_or_default();
        let message = why.unwrap_or_else(|| {
            format!("`{name}` was running when the run stopped, and may have been done")
        });
        let interrupt = Interrupt::new(self.name(request), UnfinishedStep::REASON)
            .with_message(message)
            .with_response_schema(UnfinishedStep::schema())
            .with_payload(request.subject())
            .for_role(UnfinishedStep::ROLE);
        self.asked.clone_from(&interrupt.id);
        self.store(request);
        // The callbacks around the tool may have answers that they have not come to again.
        request.context().keep_answers();
        Error::interrupt(interrupt)
    }

    /// Stores the question with the conversation.
    fn store<R: StepRequest>(&self, request: &R) {
        let question = serde_json::json!(self);
        request
            .context()
            .private_state()
            .set(key(request), question);
    }

    /// Returns the name of the interrupt. It names the attempt, so that an answer about an earlier
    /// attempt is not taken for this one.
    fn name<R: StepRequest>(&self, request: &R) -> String {
        format!(
            "unfinished {} {}",
            request.context().step_path(),
            self.number()
        )
    }
}

/// Returns the key of the stored question. The key of the call alone would not do: agents of one
/// name that run at once have the same call path.
fn key<R: StepRequest>(request: &R) -> String {
    let context = request.context();
    context.call_key(&format!("{KEY} {}", context.step_path()))
}
