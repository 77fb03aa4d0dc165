//! The order of tool results.

use std::collections::HashMap;

use crate::message::{Message, Messages, Role, ToolResult};

impl Messages {
    /// Returns the messages with the results of each turn in the order of its calls, directly after
    /// them, or `None` if they are so. What the tools of a turn have brought besides is
    /// [released](Message::released) once the turn is over. Looks at the turn that goes on at index
    /// `from`, and at all after it.
    pub(crate) fn in_call_order(&self, from: usize) -> Option<Self> {
        let at = self.turn_at(from);
        // At most one result, as after most calls, has no order.
        if self.len() - at <= 2 {
            return None;
        }
        self.ordered_from(at)
    }

    /// Returns the messages as [`in_call_order`](Self::in_call_order) does. Looks at all that are
    /// not known to be [whole](Self::whole).
    pub(crate) fn all_in_call_order(&self) -> Option<Self> {
        self.ordered_from(self.turn_at(self.whole()))
    }

    /// Returns the index of the message whose turn goes on at this index.
    fn turn_at(&self, index: usize) -> usize {
        let mut at = index.min(self.len());
        while at > 0 && self[at - 1].role() == Role::Tool {
            at -= 1;
        }
        at.saturating_sub(1)
    }

    fn ordered_from(&self, mut at: usize) -> Option<Self> {
        if self.are_in_order(at) {
            return None;
        }
        let mut ordered = self.clone();
        while let Some(calling) = self.get(at) {
            let answers = self
                .range(at + 1)
                .take_while(|message| message.role() == Role::Tool);
            let sorted = sorted(calling, answers);
            let is_over = at + 1 + sorted.len() < self.len() || !self.has_open_calls();
            at += 1;
            for message in sorted {
                if let Some(slot) = ordered.get_mut(at) {
                    *slot = if is_over {
                        message.released()
                    } else {
                        message.clone()
                    };
                }
                at += 1;
            }
        }
        Some(ordered)
    }

    /// Returns whether the last turn holds messages that its tools have brought besides their
    /// results.
    pub(crate) fn holds_messages(&self) -> bool {
        let mut latest = self
            .iter()
            .rev()
            .take_while(|message| message.role() == Role::Tool);
        latest.any(|message| message.held_by().is_some())
    }

    /// Returns whether the results of each turn from index `at` on are in the order of its calls,
    /// with nothing between them, and no turn that is over holds messages.
    fn are_in_order(&self, at: usize) -> bool {
        let mut open = None;
        let mut are_over = false;
        let mut holds = false;
        let are_sorted = self.range(at).all(|message| match result(message) {
            _ if message.role() != Role::Tool => {
                (open, are_over) = (Some(message.tool_calls()), false);
                !holds
            }
            Some(result) => {
                let mut calls = open.iter_mut().flatten();
                !are_over && calls.any(|call| call.id == result.call_id)
            }
            None => {
                holds |= message.held_by().is_some();
                are_over = true;
                true
            }
        });
        are_sorted && (!holds || self.has_open_calls())
    }

    fn has_open_calls(&self) -> bool {
        self.open_calls().next().is_some()
    }
}

fn sorted<'a>(calling: &Message, answers: impl Iterator<Item = &'a Message>) -> Vec<&'a Message> {
    let positions: HashMap<_, _> = calling
        .tool_calls()
        .enumerate()
        .map(|(position, call)| (&*call.id, position))
        .collect();
    let position = |id: &str| positions.get(id).copied().unwrap_or(positions.len());
    let mut sorted: Vec<_> = answers.collect();
    sorted.sort_by_key(|message| match (result(message), message.held_by()) {
        (Some(result), _) => (false, position(&result.call_id)),
        (None, held_by) => (true, held_by.map_or(usize::MAX, position)),
    });
    sorted
}

fn result(message: &Message) -> Option<&ToolResult> {
    message.tool_results().next()
}
