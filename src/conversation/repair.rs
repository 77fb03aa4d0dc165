//! Completes a conversation for providers, which require that each tool call is directly followed
//! by one result. Results stand in the order of their calls, whoever gave them and when.

use std::collections::{HashMap, HashSet};

use super::call_name::CallName;
use crate::message::{IdPart, Message, Messages, Part, Role, ToolCall, ToolResult};

/// Completes a conversation, and returns the results that were added to calls without one.
///
/// | problem | repair |
/// |---|---|
/// | a call without a result | it gets a result that says so |
/// | a late result of a call without one | it moves to its call |
/// | two results of a call, both directly after it | they are merged |
/// | a late result of a call that has one, or a result without a call | it becomes a user message in its place |
///
/// Calls at the very end stay open: they are still to be run.
pub(crate) fn make_whole(messages: &mut Messages) -> Vec<(CallName, Message)> {
    if let Some(ordered) = messages.all_in_call_order() {
        *messages = ordered;
    }
    if note_whole(messages) {
        return Vec::new();
    }
    let turns = Turns::of(messages);
    let mut repaired = Messages::new();
    let mut added = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        turns.put(index, message, &mut repaired, &mut added);
    }
    *messages = repaired;
    added
}

/// Returns whether a message is more than results, so that it ends the results of a turn.
fn goes_on(message: &Message) -> bool {
    let holds_results_alone = || {
        message
            .parts()
            .iter()
            .all(|part| matches!(part, Part::ToolResult(_)))
    };
    message.role() != Role::Tool && !holds_results_alone()
}

/// Returns whether a conversation, whose results are in order, is complete. Notes how far it is
/// whatever comes after, so that an agent that continues it looks only at what is new.
pub(super) fn note_whole(messages: &mut Messages) -> bool {
    let known = messages.whole();
    let mut whole = known;
    let mut open = HashSet::new();
    for (index, message) in (known..).zip(messages.range(known)) {
        if message
            .tool_results()
            .any(|result| !open.remove(&*result.call_id))
        {
            return false;
        }
        if goes_on(message) {
            if !open.is_empty() {
                return false;
            }
            open.extend(message.tool_calls().map(|call| &*call.id));
        }
        if open.is_empty() {
            whole = index + 1;
        }
    }
    messages.note_whole(whole);
    true
}

/// The turns with tool calls, by position.
struct Turns<'a> {
    by_turn: HashMap<usize, Vec<(&'a ToolCall, Option<Answer<'a>>)>>,
    /// Results without a call, and surplus results.
    extra: HashSet<(usize, usize)>,
    /// The turn at the very end, whose calls may still be open.
    last: Option<usize>,
}

/// One result, and other ones beside it.
struct Answer<'a> {
    results: Vec<&'a ToolResult>,
    /// The message of the first, if it contains nothing else.
    message: Option<&'a Message>,
}

impl<'a> Turns<'a> {
    fn of(messages: &'a Messages) -> Self {
        let mut turns = Self {
            by_turn: HashMap::new(),
            extra: HashSet::new(),
            last: None,
        };
        // Ids may recur in another turn: the latest is meant.
        let mut calls: HashMap<&str, (usize, usize)> = HashMap::new();
        for (index, message) in messages.iter().enumerate() {
            for (number, result) in message.tool_results().enumerate() {
                let position = calls.get(&*result.call_id).copied();
                let slot = position.and_then(|(turn, call)| {
                    Some((turn, turns.by_turn.get_mut(&turn)?.get_mut(call)?))
                });
                match slot {
                    Some((_, (_, answer @ None))) => {
                        *answer = Some(Answer {
                            results: vec![result],
                            message: Some(message).filter(|message| message.parts().len() == 1),
                        });
                    }
                    Some((turn, (_, Some(answer)))) if turns.last == Some(turn) => {
                        if !answer.results.contains(&result) {
                            answer.results.push(result);
                        }
                    }
                    _ => drop(turns.extra.insert((index, number))),
                }
            }
            if goes_on(message) {
                turns.last = None;
                let open: Vec<_> = message.tool_calls().map(|call| (call, None)).collect();
                if !open.is_empty() {
                    for (number, (call, _)) in open.iter().enumerate() {
                        calls.insert(&*call.id, (index, number));
                    }
                    turns.by_turn.insert(index, open);
                    turns.last = Some(index);
                }
            }
        }
        turns
    }

    /// Adds a message, followed by the results of its calls.
    fn put(
        &self,
        index: usize,
        message: &Message,
        messages: &mut Messages,
        added: &mut Vec<(CallName, Message)>,
    ) {
        let mut remaining = Vec::new();
        let mut number = 0;
        for part in message.parts() {
            match part {
                Part::ToolResult(result) => {
                    if self.extra.contains(&(index, number)) {
                        let words = format!("Result of the tool `{}`:", result.name);
                        let parts = std::iter::once(Part::from_text(words));
                        let parts = parts.chain(result.parts.iter().cloned());
                        // A user message would end a turn whose calls are still open.
                        let is_last = self.last.is_some_and(|last| index > last);
                        let role = if is_last { Role::Tool } else { Role::User };
                        // It is the word of a tool, in whatever role, and a part of the message may
                        // stay in its place with the id.
                        let id = message.id().map(|id| id.part(surplus(number)));
                        messages.push(Message::new(role, parts).with_optional_id(id.as_ref()));
                    }
                    number += 1;
                }
                part => remaining.push(part),
            }
        }
        match number {
            0 => messages.push(message.clone()),
            _ if remaining.is_empty() => {}
            _ => messages.push(
                Message::new(message.role(), remaining.into_iter().cloned())
                    .with_optional_id(message.id()),
            ),
        }
        let calls = self.by_turn.get(&index).into_iter().flatten();
        for (number, (call, answer)) in calls.enumerate() {
            match answer {
                Some(Answer { results, message }) => {
                    messages.push(match message {
                        Some(message) if results.len() == 1 => (*message).clone(),
                        // More than what the call has brought, which the id would say.
                        _ => {
                            let id = message.and_then(Message::id);
                            let id = id.map(|id| id.part(surplus(0)));
                            merged(results).with_optional_id(id.as_ref())
                        }
                    });
                }
                None if self.last == Some(index) => {}
                None => {
                    let mut result = refusal(call, ToolResult::LEFT);
                    if let Some(id) = message.id() {
                        let name = CallName {
                            message: id.clone(),
                            index: number,
                        };
                        name.identify_result(&mut result);
                        added.push((name, result.clone()));
                    }
                    messages.push(result);
                }
            }
        }
    }
}

/// Returns the part of an id that names a result, of the message that has it, whose call is not
/// known or has brought another.
fn surplus(number: usize) -> IdPart {
    IdPart::Result {
        call: 0,
        number: number + 1,
    }
}

fn merged(results: &[&ToolResult]) -> Message {
    let mut all = results[0].clone();
    for result in &results[1..] {
        all.parts.extend(result.parts.iter().cloned());
        // The later result says how the call has ended.
        all.is_error = result.is_error;
        all.is_error_text |= result.is_error_text;
        if all.answered_by().is_empty() {
            all.set_answered_by(result.answered_by().to_vec());
        }
    }
    Message::tool(all)
}

/// Returns the result of a call without one, which says why.
pub(crate) fn refusal(call: &ToolCall, why: impl Into<String>) -> Message {
    Message::tool(ToolResult::new(call, [Part::from_text(why)]).failed())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asks(ids: &[&str]) -> Message {
        let calls = ids.iter().map(|id| ToolCall::new(*id, "add", json!({})));
        Message::new(Role::Assistant, calls.map(Part::from))
    }

    fn answers(id: &str) -> Message {
        let call = ToolCall::new(id, "add", json!({}));
        Message::tool(ToolResult::new(&call, [Part::from_text("3")]))
    }

    /// Adds messages to a list, and makes that whole, with and without what it knows of itself.
    fn check(known: &Messages, added: &[Message]) {
        let mut known = known.clone();
        known.extend(added.iter().cloned());
        let mut unknown: Messages = known.iter().cloned().collect();
        assert_eq!(unknown.whole(), 0);
        let before = format!("{known:?}");
        let added = make_whole(&mut known);
        assert_eq!(added, make_whole(&mut unknown), "added to {before}");
        assert_eq!(known, unknown, "made of {before}");
    }

    #[test]
    fn a_conversation_that_goes_on_is_made_whole_as_one_that_is_new() {
        let kinds = [
            Message::user("1 + 2?"),
            Message::assistant("3"),
            asks(&["a"]),
            asks(&["a", "b"]),
            answers("a"),
            answers("b"),
            Message::user("By the way.").held("b"),
        ];
        let mut conversations = vec![Vec::new()];
        for _ in 0..4 {
            let shorter = std::mem::take(&mut conversations);
            for conversation in shorter {
                for kind in &kinds {
                    let mut longer: Vec<Message> = conversation.clone();
                    longer.push(kind.clone());
                    conversations.push(longer);
                }
            }
        }
        for conversation in conversations {
            for length in 0..conversation.len() {
                let (earlier, later) = conversation.split_at(length);
                let mut known = Messages::from(earlier.to_vec());
                make_whole(&mut known);
                check(&known, later);
            }
        }
    }

    #[test]
    fn what_is_known_of_messages_that_change_is_forgotten() {
        let mut messages = Messages::from([Message::user("1 + 2?"), asks(&["a"]), answers("a")]);
        make_whole(&mut messages);
        assert_eq!(messages.whole(), 3);

        let mut shorter = messages.clone();
        shorter.pop();
        assert_eq!(shorter.whole(), 0);
        check(&shorter, &[Message::user("Well?")]);

        let mut changed = messages.clone();
        *changed.get_mut(1).unwrap() = asks(&["a", "b"]);
        assert_eq!(changed.whole(), 0);
        check(&changed, &[Message::user("Well?")]);
        assert_eq!(messages.whole(), 3);
    }
}
