//! Questions to people, and their answers.

use std::collections::HashSet;

use serde_json::Value;
use tower_agent::context::RunContext;
use tower_agent::error::{Error, ErrorKind, Resolution, ResolutionOutcome, Result};

/// Notes that this run asks the question with this id. `key` tells the guards apart.
pub(crate) fn note_asked(context: &RunContext, key: &str, id: &str) -> Result<()> {
    let values = context.values();
    values.update(key, |asked: &mut HashSet<String>| {
        asked.insert(id.to_owned());
    })?;
    Ok(())
}

/// Returns the resolution of a question of an earlier run.
pub(crate) fn resolution<'r>(
    context: &'r RunContext,
    key: &str,
    id: &str,
) -> Option<&'r Resolution> {
    let values = context.values();
    let is_new = values.update(key, |asked: &mut HashSet<String>| asked.contains(id));
    // A question of this run cannot have been answered yet: the resolution is that of an earlier
    // one. In doubt it is asked again.
    if is_new.unwrap_or(true) {
        return None;
    }
    context.resolution(id)
}

/// Returns the answer in a resolution: what `read` finds in its payload, or `none` if it was
/// cancelled.
pub(crate) fn answer<A>(
    resolution: &Resolution,
    read: impl FnOnce(&Value) -> Result<A>,
    none: A,
) -> Result<A> {
    match &resolution.outcome {
        ResolutionOutcome::Resolved(payload) => read(payload),
        ResolutionOutcome::Cancelled => Ok(none),
        // An outcome that is newer than this crate is no approval.
        _ => {
            let message = "the outcome of this resolution is unknown";
            Err(Error::new(ErrorKind::InvalidRequest, message))
        }
    }
}
