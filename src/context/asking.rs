//! Questions that a call asks people, and their answers.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::run_context::{KEPT_ANSWERS, RunContext};
use crate::error::{Error, Expiry, Interrupt, Resolution, Result};

const ASKED: &str = "tower_agent.asked";

const ANSWERED_BY: &str = "tower_agent.answered_by";

/// A question as it was asked last, kept with the conversation until its call has a result.
#[derive(Serialize, Deserialize)]
struct Asked {
    id: String,
    expiry: Option<Expiry>,
    /// The next request does not carry the resolution again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<Resolution>,
}

impl RunContext {
    /// Returns the answer to this question, or the error that asks it and interrupts the run: a
    /// later run that resumes with the answer comes here again, and finds it. In a tool or a
    /// callback around one, use [`ToolRequest::ask`](crate::ToolRequest::ask), which also binds the
    /// question to the call's arguments.
    ///
    /// The answer counts for the question that was shown. If the question has changed since, in any
    /// part, it is asked anew and the earlier one is void; but a time for the answer goes on from
    /// when it was asked first. Questions are told apart by their [names](Interrupt::name), so ask
    /// one thing under one name. An answer counts until the tool call has a result; outside a tool
    /// call, until the run ends for good.
    ///
    /// # Errors
    ///
    /// Fails with the [interrupt](Error::interrupt), until there is an answer.
    pub fn ask(&self, question: Interrupt) -> Result<Resolution> {
        self.ask_in(question, self.tool_call.is_some())
    }

    pub(crate) fn ask_in(&self, question: Interrupt, is_in_call: bool) -> Result<Resolution> {
        // Agents of one name that run at once have the same call path.
        let key = format!("{ASKED} {} {}", self.step_path(), question.name);
        let (key, is_kept) = if is_in_call {
            (self.call_key(&key), true)
        } else {
            // No call whose result would end it: it ends with the run, which a pause does not.
            (key, self.is_continuation())
        };
        let private = self.private_state();
        // A value that cannot be read counts as no question.
        let asked: Option<Asked> = private.read(&key, |stored| Asked::deserialize(stored?).ok());
        let asked = asked.filter(|_| is_kept);
        // Asked anew without an answer, it has no more time, whatever it asks now.
        let first = asked.as_ref().filter(|asked| asked.answer.is_none());
        let question = match first {
            Some(first) => question.with_expiry_of(first.expiry.clone()),
            None => question,
        };
        if let Some(mut asked) = asked.filter(|asked| asked.id == question.id) {
            if let Some(answer) = asked.answer {
                return Ok(answer);
            }
            if let Some(answer) = self.resolution(&question.id) {
                asked.answer = Some(answer.clone());
                private.set(key, json!(asked));
                self.note_answer(&answer);
                return Ok(answer);
            }
        }
        let asked = Asked {
            id: question.id.clone(),
            expiry: question.expiry.clone(),
            answer: None,
        };
        private.set(key, json!(asked));
        Err(Error::interrupt(question))
    }

    /// Keeps the answers that the run was resumed with, while a tool call of the conversation is
    /// open: later runs [find](Self::resolution) them as well. For a guard that asks about a call
    /// before what is inside has come to its answers; the next request brings those of the guard
    /// alone.
    ///
    /// ```
    /// use tower_agent::{Interrupt, Request, Result, ToolRequest};
    ///
    /// /// Asks before an approval inside, which may have been answered.
    /// fn ask_first(call: &ToolRequest) -> Result<()> {
    ///     call.context().keep_answers();
    ///     call.ask(Interrupt::new("is it still open?", "audit"))?;
    ///     Ok(())
    /// }
    /// # drop(ask_first);
    /// ```
    pub fn keep_answers(&self) {
        let given = self.resolutions();
        if given.is_empty() {
            return;
        }
        let mut kept = self.kept_answers().unwrap_or_default();
        kept.extend(given.into_iter().map(|answer| (answer.id.clone(), answer)));
        self.private_state().set(KEPT_ANSWERS, json!(kept));
    }

    /// Notes that this answer to a question about the tool call counts, so that the call's result
    /// says [who](crate::message::ToolResult::answered_by) has answered. For a guard that keeps
    /// what it has asked itself; [`ask`](Self::ask) does it.
    pub fn note_answer(&self, answer: &Resolution) {
        let Some(name) = answer.by.as_ref().filter(|_| self.tool_call.is_some()) else {
            return;
        };
        let mut names = self.answered_by();
        if names.last() != Some(name) {
            names.push(name.clone());
            let key = self.call_key(ANSWERED_BY);
            self.private_state().set(key, json!(names));
        }
    }

    /// Returns the names of those who have [answered](Self::note_answer) questions about this tool
    /// call, in their order.
    #[must_use]
    pub fn answered_by(&self) -> Vec<String> {
        // Usually there is none, and a path takes longer than the question.
        if !self.private_state().has_data_about_calls() {
            return Vec::new();
        }
        let key = self.call_key(ANSWERED_BY);
        let names = self
            .private_state()
            .read(&key, |stored| Vec::deserialize(stored?).ok());
        names.unwrap_or_default()
    }
}
