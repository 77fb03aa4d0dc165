//! The answers of people.

use serde_json::Value;
use tower_agent::error::{Error, ErrorKind, Resolution, ResolutionOutcome, Result};

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
