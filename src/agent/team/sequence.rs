//! Teams that run in turn.

use super::config::TeamConfig;
use crate::agent::team_response::TeamResponse;
use crate::agent::waiting::whose_turn;
use crate::call::Request;
use crate::error::Result;
use crate::run::{AgentRequest, AgentResponse, EndReason};

pub(super) async fn run(
    team: &TeamConfig,
    rounds: u32,
    request: &AgentRequest,
) -> Result<AgentResponse> {
    let context = request.context();
    let place = context.place();
    let request_messages = request.messages();
    let mut tally = TeamResponse::since(request_messages.len(), place.begin(request_messages), 0);
    // The members before the one that continues have finished.
    let mut goes_on = whose_turn(context, &team.members, tally.messages().in_call_order())?;
    // A run that goes on after a pause goes on in its round.
    let first = if goes_on.is_some() { place.round() } else { 0 };
    for round in first..rounds {
        if rounds > 1 {
            place.begin_round(round);
        }
        for (index, member) in team
            .members
            .iter()
            .enumerate()
            .skip(goes_on.unwrap_or_default())
        {
            if goes_on.take().is_none() {
                place.give_turn(member.name(), tally.messages().len());
            }
            let mut handed = request.hand_over(tally.hand_over());
            if index + 1 < team.members.len() {
                // Only the last member gives the final answer.
                handed = handed.with_answer_format(None);
            }
            let (member, run) = member.join(member.name(), handed);
            let response = run.await?;
            tally.add(&response);
            // After each member: a run that is dropped resumes with the next one.
            place.record.set(tally.messages().clone());
            if tally.waits() || team.is_over(&member, &response)? {
                return Ok(tally.response(context, EndReason::StopCondition));
            }
        }
    }
    Ok(tally.response(context, EndReason::Completed))
}
