//! One after another.

use super::Config;
use crate::agent::{AgentRequest, AgentResponse, End};
use crate::error::Result;
use crate::request::Request;
use crate::runner::step::{self, Step};
use crate::runner::tally::Tally;
use crate::runner::waiting;

pub(super) async fn run(
    team: &Config,
    rounds: u32,
    request: &AgentRequest,
) -> Result<AgentResponse> {
    let mut tally = Tally::new(request.messages());
    let mut done_before = waits_at(team, request);
    for _ in 0..rounds {
        for member in team.members.iter().skip(std::mem::take(&mut done_before)) {
            let (context, run) = member.join(request.hand_over(tally.messages().clone()));
            let response = run.await?;
            tally.add(&response);
            waiting::note(request.context(), member, &response);
            if tally.waits() || team.is_over(&context, &response) {
                return Ok(tally.response(request.context(), End::Stopped));
            }
        }
    }
    Ok(tally.response(request.context(), End::Finished))
}

/// The member that a resumed conversation waits for; those before it have had their turn.
fn waits_at(team: &Config, request: &AgentRequest) -> usize {
    if let Some(noted) = waiting::noted(request.context(), &team.members, request.messages()) {
        return noted;
    }
    match step::next(request.messages()) {
        Step::Tools(open) => {
            team.members.iter().position(|member| member.answers(&open)).unwrap_or_default()
        }
        _ => 0,
    }
}
