//! Ends open entities.

use std::sync::Arc;

use super::owners::{Entities, Owner};
use crate::wire::{Event, EventKind, RunFinished, RunOutcome, SubagentOutcome};

/// Tags the event with its owner.
pub(super) fn of(event: Event, owner: &Owner) -> Event {
    match owner {
        Some(owner) => event.with_subagent_run_id(owner.clone()),
        None => event,
    }
}

impl Entities {
    /// Ends all open entities because the run ends, the last opened first.
    pub(super) fn close_all(&mut self, finished: &RunFinished, out: &mut Vec<Event>) {
        // Collected first: the maps have no order, and the client expects the innermost end first.
        let mut ends = Vec::new();
        for (id, entity) in &mut self.messages {
            if let Some(at) = entity.opened.take() {
                ends.push((at, of(Event::text_end(id.clone()), &entity.owner)));
            }
        }
        for (id, entity) in &mut self.tool_calls {
            if let Some(at) = entity.opened.take() {
                ends.push((at, of(Event::tool_call_end(id.clone()), &entity.owner)));
            }
        }
        for (id, thought) in &mut self.thoughts {
            if let Some(at) = thought.message.take() {
                ends.push((
                    at,
                    of(Event::reasoning_message_end(id.clone()), &thought.owner),
                ));
            }
            if let Some(at) = thought.span.take() {
                ends.push((at, of(Event::reasoning_end(id.clone()), &thought.owner)));
            }
        }
        for ((owner, name), at) in self.steps.drain() {
            ends.push((at, of(Event::step_finished(name), &owner)));
        }
        for (id, opened) in &mut self.subagents {
            if let Some(at) = opened.take() {
                ends.push((at, subagent_end(id.clone(), finished)));
            }
        }
        ends.sort_unstable_by_key(|(at, _)| std::cmp::Reverse(*at));
        out.extend(ends.into_iter().map(|(_, end)| end));
    }
}

/// Returns a subagent's end, which depends on the end of the run.
fn subagent_end(id: Arc<str>, finished: &RunFinished) -> Event {
    match finished.outcome {
        Some(RunOutcome::Interrupt { .. }) => EventKind::SubagentFinished {
            subagent_run_id: id,
            result: None,
            outcome: Some(SubagentOutcome::Suspended {
                // Nothing here says which of the run's interrupts are the subagent's.
                interrupt_ids: Vec::new(),
            }),
        }
        .into(),
        Some(RunOutcome::Cancelled) => Event::subagent_error(id, "the run was cancelled"),
        Some(RunOutcome::Success { .. }) | None => Event::subagent_finished(id),
    }
}
