//! Answers that a client gives twice.
//!
//! Some front ends answer a question about a call as the protocol says, and beside it with a
//! message that looks like the result of the call. The answer counts; the message only repeats it.

use std::collections::HashSet;

use serde_json::{Value, json};
use tower_agent::error::{Resolution, ResolutionOutcome};
use tower_agent::message::Part;

use super::client::{ClientInput, ClientMessage};
use super::thread::Thread;

/// The answers that a client may repeat: those of its input, and the earlier ones of a run that
/// broke off.
pub(crate) struct Answers<'a> {
    thread: &'a Thread,
    given: &'a [Resolution],
    /// The calls with questions that the sender may not answer.
    for_others: HashSet<&'a str>,
}

/// Compares a message with the answers to the questions about its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// There is no answer.
    Nothing,
    /// The same as one of them.
    Same,
    /// Something else.
    Other,
}

impl<'a> Answers<'a> {
    pub(crate) fn new<M: ClientMessage>(thread: &'a Thread, input: &'a ClientInput<'_, M>) -> Self {
        let open = thread.open.iter();
        let for_others = open.filter(|open| !input.may_answer(&open.interrupt));
        Self {
            thread,
            given: &input.answers,
            for_others: for_others
                .filter_map(|open| open.interrupt.call())
                .collect(),
        }
    }

    /// Returns whether somebody else than the sender is to say whether a call may be made.
    pub(crate) fn are_for_others(&self, call: &str) -> bool {
        self.for_others.contains(call)
    }

    /// Compares a message that looks like the result of a call with the answers to the questions
    /// about that call.
    pub(crate) fn compare<M: ClientMessage>(
        &self,
        call: &str,
        message: &M,
        index: usize,
    ) -> Result<Said, M::Error> {
        let mut about = self.about(call).peekable();
        if about.peek().is_none() {
            return Ok(Said::Nothing);
        }
        let text = text_of(&message.parts(index)?);
        let is_same = |outcome| text.as_deref().is_some_and(|text| repeats(text, outcome));
        Ok(if about.any(is_same) {
            Said::Same
        } else {
            Said::Other
        })
    }

    /// Returns the answers to questions about a call.
    fn about(&self, call: &str) -> impl Iterator<Item = &ResolutionOutcome> {
        let open = self.thread.open.iter();
        let open = open.filter(move |open| open.interrupt.call() == Some(call));
        let given = open.flat_map(|open| {
            let given = self.given.iter();
            given.filter(move |given| *given.id == *open.id)
        });
        let given = given.map(|given| &given.outcome);
        let earlier = self.thread.answered.iter();
        let earlier = earlier.filter(move |earlier| earlier.call.as_deref() == Some(call));
        given.chain(earlier.map(|earlier| &earlier.answer.outcome))
    }
}

/// Returns the text, if there is nothing else.
fn text_of(parts: &[Part]) -> Option<String> {
    parts.iter().map(Part::as_text).collect()
}

/// Returns whether a text is this answer, as JSON. Where there is nothing to say, front ends say
/// that the question was answered, or that it was not.
fn repeats(text: &str, outcome: &ResolutionOutcome) -> bool {
    let said = serde_json::from_str::<Value>(text).ok();
    match outcome {
        ResolutionOutcome::Cancelled => said == Some(json!({ "status": "cancelled" })),
        ResolutionOutcome::Resolved(Value::Null) => {
            said == Some(json!({ "status": "resolved" })) || said == Some(Value::Null)
        }
        ResolutionOutcome::Resolved(payload) => {
            said.as_ref() == Some(payload) || payload.as_str() == Some(text)
        }
        _ => false,
    }
}
