use std::time::SystemTime;

use tower_agent::agent::SavedRequest;
use tower_agent::{AgentRequest, Interrupt, Resolution};

use super::run_end::RunEnd;
use super::unfinished::UnfinishedStep;

/// Returns the request that continues a run, from its latest request and its current end. For a
/// journal of your own; [`Runs::request`](super::Runs::request) is that of the databases.
///
/// For a run that waits it resumes the checkpoint: add the resolutions. It has those of interrupts
/// that have [expired](Interrupt::with_expiry) at this time. Otherwise it is the latest request
/// again.
#[must_use]
pub fn next_request(latest: SavedRequest, end: Option<RunEnd>, now: SystemTime) -> AgentRequest {
    let Some(RunEnd::Waiting { checkpoint, state }) = end else {
        return latest.into();
    };
    let earlier = still_needed(latest.resolutions(), &checkpoint.head.interrupts);
    let open = checkpoint.head.interrupts.iter();
    let expired: Vec<_> = open.filter_map(|open| open.answer_at(now)).collect();
    let run = latest.run_id().to_owned();
    let settings = AgentRequest::from(latest).settings().clone();
    AgentRequest::resume(checkpoint)
        .with_settings(settings)
        .with_state(state.into())
        .with_resolutions(earlier)
        .with_resolutions(expired)
        .with_run_id(run)
}

/// Returns the earlier resolutions that unfinished calls still need.
///
/// Such a call runs again, and its approval with it, so its decisions must be given once more. Each
/// counts only for the question that was shown, so those of other calls do no harm. An interrupt
/// that is open again needs a new answer.
fn still_needed(earlier: &[Resolution], interrupts: &[Interrupt]) -> Vec<Resolution> {
    let is_unfinished = |open: &Interrupt| open.reason == UnfinishedStep::REASON;
    if !interrupts.iter().any(is_unfinished) {
        return Vec::new();
    }
    let is_closed = |answer: &&Resolution| interrupts.iter().all(|open| open.id != answer.id);
    earlier.iter().filter(is_closed).cloned().collect()
}
