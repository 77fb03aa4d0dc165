//! Counts of the calls of tools so far.

use serde_json::{Map, Value, json};
use tower_agent::RunContext;
use tower_agent::context::ValueTypeError;

/// The key of the counts in the conversation.
const COUNTS: &str = "tower_agent.guard.policy calls";

/// The key of the run that has begun to count.
const RUN: &str = "tower_agent.guard.policy run";

/// The earlier calls of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) of_run: i64,
    pub(crate) of_conversation: i64,
}

/// Counts a call of this tool; returns the number of those before. Calls that are made at the same
/// time see different numbers.
pub(crate) fn count(context: &RunContext, tool: &str) -> Result<Counts, ValueTypeError> {
    begin_run(context)?;
    Ok(change(context, tool, 1))
}

/// Returns the number of calls of this tool so far: what the next one would see.
pub(crate) fn counted(context: &RunContext, tool: &str) -> Result<Counts, ValueTypeError> {
    begin_run(context)?;
    Ok(change(context, tool, 0))
}

/// Takes a call back that was not made.
pub(crate) fn uncount(context: &RunContext, tool: &str) {
    change(context, tool, -1);
}

/// A run counts anew, unless it goes on with one that has paused.
fn begin_run(context: &RunContext) -> Result<(), ValueTypeError> {
    let was_begun = context
        .values()
        .update(RUN, |begun: &mut bool| std::mem::replace(begun, true))?;
    if was_begun || context.is_continuation() {
        return Ok(());
    }
    let private = context.private_state();
    if private.read(COUNTS, |counts| {
        counts.is_some_and(|counts| counts.get("run").is_some())
    }) {
        private.update(COUNTS, |counts| {
            if let Value::Object(counts) = counts {
                counts.remove("run");
            }
        });
    }
    Ok(())
}

fn change(context: &RunContext, tool: &str, by: i64) -> Counts {
    context.private_state().update(COUNTS, |counts| {
        if !counts.is_object() {
            *counts = Value::Object(Map::new());
        }
        let mut change = |part: &str| {
            let part = counts.as_object_mut().map(|counts| {
                counts
                    .entry(part)
                    .or_insert_with(|| Value::Object(Map::new()))
            });
            let before = part
                .as_ref()
                .and_then(|part| part.get(tool)?.as_i64())
                .unwrap_or(0);
            if let Some(part) = part.and_then(Value::as_object_mut) {
                part.insert(tool.to_owned(), json!((before + by).max(0)));
            }
            before
        };
        Counts {
            of_run: change("run"),
            of_conversation: change("conversation"),
        }
    })
}
