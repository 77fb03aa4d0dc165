use tower_agent::agent::SavedRequest;
use tower_agent::{AgentRequest, Interrupt, Resolution};

use super::question::path_of;
use super::run_end::RunEnd;

/// Returns the request with which a run goes on whose latest one has ended so.
pub(crate) fn next_request(latest: SavedRequest, end: Option<RunEnd>) -> AgentRequest {
    let Some(RunEnd::Waiting { checkpoint, state }) = end else {
        return latest.into();
    };
    let kept = kept(latest.resolutions(), &checkpoint.interrupts);
    let run = latest.run_id().to_owned();
    let settings = AgentRequest::from(latest).settings().clone();
    AgentRequest::resume(checkpoint)
        .with_settings(settings)
        .with_state(state.into())
        .with_resolutions(kept)
        .with_run_id(run)
}

/// Returns the earlier resolutions that a call still needs which was asked about because it was not
/// finished: what was decided in it is not kept. A question that is asked again needs a new answer.
fn kept(earlier: &[Resolution], interrupts: &[Interrupt]) -> Vec<Resolution> {
    let unfinished: Vec<_> = interrupts.iter().filter_map(path_of).collect();
    let is_of_one = |id: &str| unfinished.contains(&id);
    let is_asked = |id: &str| interrupts.iter().any(|it| it.id == id);
    let kept = earlier
        .iter()
        .filter(|it| is_of_one(&it.id) && !is_asked(&it.id));
    kept.cloned().collect()
}
