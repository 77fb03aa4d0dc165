//! The next step: a pure function of the transcript.

use super::call_name::CallName;
use crate::message::{FinishReason, Message, Messages, ToolCall, ToolResult};

#[derive(Debug, PartialEq)]
pub(crate) enum NextStep {
    /// Call the model.
    Model,
    /// Run the tool calls that have no result.
    Tools(PendingCalls),
    /// Nothing: the model has sent its final message.
    Done,
}

/// The tool calls of a message that have no result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PendingCalls {
    /// The message of the model with all its calls.
    message: Message,
    /// The places of the pending calls among them; `None` for all, as usual.
    pending: Option<Vec<usize>>,
}

impl PendingCalls {
    pub(crate) fn calls(&self) -> impl Iterator<Item = (usize, &ToolCall)> {
        let calls = self.message.tool_calls().enumerate();
        calls.filter(|(index, _)| match &self.pending {
            Some(pending) => pending.contains(index),
            None => true,
        })
    }

    pub(crate) fn name(&self, index: usize) -> CallName {
        CallName::new(&self.message, index)
    }

    /// Returns the result of the calls if none of them is made: the last may have lost its
    /// arguments, or have others than the model was about to write.
    pub(crate) fn why_not_made(&self) -> Option<&'static str> {
        match self.message.finish_reason() {
            FinishReason::Length => Some(ToolResult::CUT_OFF),
            FinishReason::ContentFilter => Some(ToolResult::FILTERED),
            _ => None,
        }
    }

    pub(crate) fn message(&self) -> &Message {
        &self.message
    }
}

/// Returns the step after these messages.
///
/// Only the last turn counts: the last assistant message, and the results after it. A message in
/// which the provider paused is continued by the next one of the model.
pub(crate) fn next_step(messages: &Messages) -> NextStep {
    let Some(turn) = messages.last_turn() else {
        // A user message follows: calls left open before it are closed.
        return NextStep::Model;
    };
    let message = turn.calling.clone();
    if !turn.has_results() || message.tool_calls().next().is_none() {
        return step_after(message);
    }
    let open: Vec<_> = turn.open_calls();
    if open.is_empty() {
        return NextStep::Model;
    }
    let mut pending = Vec::with_capacity(open.len());
    for (index, call) in message.tool_calls().enumerate() {
        if open.iter().any(|open| open.id == call.id) {
            pending.push(index);
        }
    }
    NextStep::Tools(PendingCalls {
        message,
        pending: Some(pending),
    })
}

/// Returns the step after this message of the model, while no result follows it.
pub(crate) fn step_after(message: Message) -> NextStep {
    if message.tool_calls().next().is_some() {
        return NextStep::Tools(PendingCalls {
            message,
            pending: None,
        });
    }
    if *message.finish_reason() == FinishReason::PauseTurn {
        NextStep::Model
    } else {
        NextStep::Done
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::{Part, Role};

    fn call(id: &str) -> ToolCall {
        ToolCall::new(id, "add", json!({}))
    }

    fn asks(ids: &[&str]) -> Message {
        Message::new(Role::Assistant, ids.iter().map(|id| Part::from(call(id))))
    }

    fn tools(ids: &[&str], pending: Option<Vec<usize>>) -> NextStep {
        let message = asks(ids);
        NextStep::Tools(PendingCalls { message, pending })
    }

    fn answers(id: &str) -> Message {
        Message::tool(ToolResult::new(&call(id), [Part::from_text("3")]))
    }

    fn paused(text: &str) -> Message {
        let mut message = Message::assistant(text);
        message.set_finish_reason(FinishReason::PauseTurn);
        message
    }

    #[test]
    fn the_last_turn_decides() {
        let question = Message::user("1 + 2?");
        let cases = [
            (vec![], NextStep::Model),
            (vec![question.clone()], NextStep::Model),
            (
                vec![question.clone(), Message::assistant("3")],
                NextStep::Done,
            ),
            (vec![question.clone(), paused("1 and")], NextStep::Model),
            (
                vec![
                    question.clone(),
                    paused("1 and"),
                    Message::assistant("2 are 3"),
                ],
                NextStep::Done,
            ),
            (
                vec![question.clone(), asks(&["a", "b"])],
                tools(&["a", "b"], None),
            ),
            (
                vec![question.clone(), asks(&["a", "b"]), answers("b")],
                tools(&["a", "b"], Some(vec![0])),
            ),
            (
                vec![question.clone(), asks(&["a"]), answers("a")],
                NextStep::Model,
            ),
            (
                vec![
                    asks(&["a"]),
                    answers("a"),
                    Message::assistant("3"),
                    question,
                ],
                NextStep::Model,
            ),
        ];
        for (messages, step) in cases {
            assert_eq!(
                next_step(&messages.clone().into()),
                step,
                "after {messages:?}"
            );
        }
    }
}
