//! The order of tool results.

use std::collections::HashMap;

use super::{Message, Messages, Role, ToolResult};

impl Messages {
    /// Returns the messages with the results of each turn in the order of its calls, directly after
    /// them, or `None` if they are so. Looks at the turn that goes on at index `from`, and at all
    /// after it.
    pub(crate) fn in_call_order(&self, from: usize) -> Option<Self> {
        let mut ordered: Option<Self> = None;
        let mut at = from.min(self.len());
        while at > 0 && self[at - 1].role() == Role::Tool {
            at -= 1;
        }
        at = at.saturating_sub(1);
        while let Some(said) = self.get(at) {
            let answers = self.range(at + 1).take_while(|message| message.role() == Role::Tool);
            for (index, message) in (at + 1..).zip(sorted(said, answers.clone())) {
                let ordered = ordered.get_or_insert_with(|| self.clone());
                if let Some(place) = ordered.get_mut(index) {
                    *place = message.clone();
                }
            }
            at += 1 + answers.count();
        }
        ordered
    }
}

/// Returns the messages of a turn's tools in order, or none if they are in order.
fn sorted<'a>(
    said: &Message,
    answers: impl Iterator<Item = &'a Message> + Clone,
) -> Vec<&'a Message> {
    if are_in_order(said, answers.clone()) {
        return Vec::new();
    }
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

fn are_in_order<'a>(said: &Message, mut answers: impl Iterator<Item = &'a Message>) -> bool {
    let mut calls = said.tool_calls();
    let mut are_over = false;
    answers.all(|message| match result(message) {
        Some(result) => !are_over && calls.any(|call| call.id == result.call_id),
        None => {
            are_over = true;
            true
        }
    })
}

fn result(message: &Message) -> Option<&ToolResult> {
    message.tool_results().next()
}
