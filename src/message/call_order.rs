//! The order of tool results.

use std::collections::HashMap;

use super::{Message, Messages, Role, ToolResult};

impl Messages {
    /// Returns the messages with the results of each turn in the order of its calls, directly after
    /// them, or `None` if they are so. Looks at the turn that goes on at index `from`, and at all
    /// after it.
    pub(crate) fn in_call_order(&self, from: usize) -> Option<Self> {
        let mut at = from.min(self.len());
        while at > 0 && self[at - 1].role() == Role::Tool {
            at -= 1;
        }
        at = at.saturating_sub(1);
        // At most one result, as after most calls, has no order.
        if self.len() - at <= 2 || are_in_order(self.range(at)) {
            return None;
        }
        let mut ordered = self.clone();
        while let Some(said) = self.get(at) {
            let answers = self.range(at + 1).take_while(|message| message.role() == Role::Tool);
            let sorted = sorted(said, answers);
            at += 1;
            for message in sorted {
                if let Some(place) = ordered.get_mut(at) {
                    *place = message.clone();
                }
                at += 1;
            }
        }
        Some(ordered)
    }
}

/// Returns the messages of a turn's tools in order.
fn sorted<'a>(said: &Message, answers: impl Iterator<Item = &'a Message>) -> Vec<&'a Message> {
    let places: HashMap<_, _> =
        said.tool_calls().enumerate().map(|(place, call)| (&*call.id, place)).collect();
    let place = |message: &&Message| match result(message) {
        Some(result) => places.get(&*result.call_id).copied().unwrap_or(places.len()),
        None => usize::MAX,
    };
    let mut sorted: Vec<_> = answers.collect();
    sorted.sort_by_key(place);
    sorted
}

/// Returns whether the results of each turn are in the order of its calls, with nothing between them.
fn are_in_order<'a>(mut messages: impl Iterator<Item = &'a Message>) -> bool {
    let mut open = None;
    let mut are_over = false;
    messages.all(|message| match result(message) {
        _ if message.role() != Role::Tool => {
            (open, are_over) = (Some(message.tool_calls()), false);
            true
        }
        Some(result) => {
            let mut calls = open.iter_mut().flatten();
            !are_over && calls.any(|call| call.id == result.call_id)
        }
        None => {
            are_over = true;
            true
        }
    })
}

fn result(message: &Message) -> Option<&ToolResult> {
    message.tool_results().next()
}
