//! The next step: a pure function of the transcript.

use crate::message::{Message, Messages, ToolCall};

/// The next step of a run.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Call the model.
    Model,
    /// Run these tool calls of the model, which have no result.
    Tools(OpenCalls),
    /// Nothing: the model has sent its final message.
    Done,
}

/// Returns the step after these messages.
///
/// Only the last turn counts: the last assistant message, and the results after it.
pub(super) fn next(messages: &Messages) -> Step {
    let Some(turn) = messages.last_turn() else {
        // A user message follows: calls left open before it are closed.
        return Step::Model;
    };
    if turn.said.tool_calls().next().is_none() {
        return Step::Done;
    }
    if !turn.has_results() {
        return Step::Tools(OpenCalls::All(turn.said.clone()));
    }
    let open: Vec<_> = turn.open_calls().cloned().collect();
    if open.is_empty() { Step::Model } else { Step::Tools(OpenCalls::Some(open)) }
}

/// The tool calls of the last turn that have no result.
#[derive(Debug, PartialEq)]
pub(super) enum OpenCalls {
    /// Those of this message, which is the usual case and needs no copies.
    All(Message),
    Some(Vec<ToolCall>),
}

impl OpenCalls {
    /// Returns the call, if there is only one.
    pub(super) fn only(&self) -> Option<&ToolCall> {
        let mut calls = self.iter();
        calls.next().filter(|_| calls.next().is_none())
    }

    /// Returns the calls, in the model's order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ToolCall> {
        let (said, some) = match self {
            Self::All(said) => (Some(said), [].as_slice()),
            Self::Some(calls) => (None, calls.as_slice()),
        };
        said.into_iter().flat_map(Message::tool_calls).chain(some)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::{Part, Role, ToolResult};

    fn call(id: &str) -> ToolCall {
        ToolCall::new(id, "add", json!({}))
    }

    fn asks(ids: &[&str]) -> Message {
        Message::new(Role::Assistant, ids.iter().map(|id| Part::from(call(id))))
    }

    fn answers(id: &str) -> Message {
        Message::tool(ToolResult::new(&call(id), [Part::from_text("3")]))
    }

    #[test]
    fn the_last_turn_decides() {
        let question = Message::user("1 + 2?");
        let cases = [
            (vec![], Step::Model),
            (vec![question.clone()], Step::Model),
            (vec![question.clone(), Message::assistant("3")], Step::Done),
            (
                vec![question.clone(), asks(&["a", "b"])],
                Step::Tools(OpenCalls::All(asks(&["a", "b"]))),
            ),
            (
                vec![question.clone(), asks(&["a", "b"]), answers("b")],
                Step::Tools(OpenCalls::Some(vec![call("a")])),
            ),
            (vec![question.clone(), asks(&["a"]), answers("a")], Step::Model),
            (vec![asks(&["a"]), answers("a"), Message::assistant("3"), question], Step::Model),
        ];
        for (messages, step) in cases {
            assert_eq!(next(&messages.clone().into()), step, "after {messages:?}");
        }
    }
}
