use std::time::SystemTime;

use tower_agent::AgentRequest;
use tower_agent::agent::SavedRequest;

use super::run_end::RunEnd;

/// Returns the request that continues a run, from its latest request and its current end. For a
/// journal of your own; [`Runs::request`](super::Runs::request) is that of the databases.
///
/// For a run that waits it resumes the checkpoint: add the resolutions. It has those of interrupts
/// that have [expired](tower_agent::Interrupt::with_expiry) at this time. Otherwise it is the
/// latest request again.
pub fn next_request(latest: SavedRequest, end: Option<RunEnd>, now: SystemTime) -> AgentRequest {
    let Some(RunEnd::Waiting { checkpoint, state }) = end else {
        return latest.into();
    };
    let open = checkpoint.head.interrupts.iter();
    let expired: Vec<_> = open.filter_map(|open| open.answer_at(now)).collect();
    let run = latest.run_id().to_owned();
    let settings = AgentRequest::from(latest).settings().clone();
    AgentRequest::resume(checkpoint)
        .with_settings(settings)
        .with_state(state.into())
        .with_resolutions(expired)
        .with_run_id(run)
}
