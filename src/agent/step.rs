//! The next step: a pure function of the transcript.

use crate::message::{Message, Messages, Part, Role};

/// The next step of a run.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Call the model.
    Model,
    /// Run the tool calls of this message, the model's calls without a result. Usually it is the
    /// model's own message, without a copy.
    Tools(Message),
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
        return Step::Tools(turn.said.clone());
    }
    let open_calls = turn.open_calls();
    if open_calls.is_empty() {
        return Step::Model;
    }
    // Some calls have a result, as in a resumed run: these must not run again.
    let open_calls = open_calls.into_iter().cloned().map(Part::ToolCall);
    Step::Tools(Message::new(Role::Assistant, open_calls))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::{ToolCall, ToolResult};

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
                Step::Tools(asks(&["a", "b"])),
            ),
            (
                vec![question.clone(), asks(&["a", "b"]), answers("b")],
                Step::Tools(asks(&["a"])),
            ),
            (
                vec![question.clone(), asks(&["a"]), answers("a")],
                Step::Model,
            ),
            (
                vec![
                    asks(&["a"]),
                    answers("a"),
                    Message::assistant("3"),
                    question,
                ],
                Step::Model,
            ),
        ];
        for (messages, step) in cases {
            assert_eq!(next(&messages.clone().into()), step, "after {messages:?}");
        }
    }
}
