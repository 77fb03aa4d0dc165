//! Side by side.

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::Config;
use crate::agent::{AgentRequest, AgentResponse, End};
use crate::error::Result;
use crate::request::Request;
use crate::runner::step::{self, Step};
use crate::runner::tally::Tally;

pub(super) async fn run(team: &Config, request: &AgentRequest) -> Result<AgentResponse> {
    // A resumed conversation is for those that it waits for; the others have answered.
    let open = match step::next(request.messages()) {
        Step::Tools(open) if team.members.iter().any(|member| member.answers(&open)) => Some(open),
        _ => None,
    };
    let mut running = FuturesUnordered::new();
    for (index, member) in team.members.iter().enumerate() {
        if open.as_ref().is_none_or(|open| member.answers(open)) {
            let (context, run) = member.join(request.hand_over(request.messages().clone()));
            running.push(async move { (index, context, run.await) });
        }
    }

    let mut answers = Vec::with_capacity(team.members.len());
    let mut waits = false;
    let mut end = End::Finished;
    while let Some((index, context, result)) = running.next().await {
        // An error drops the members beside it.
        let response = result?;
        waits |= !response.pending().is_empty();
        let is_over = !waits && team.is_over(&context, &response);
        // Whoever has ended the team has the last word, and open calls stay last.
        let last = is_over || !response.pending().is_empty();
        answers.push((last, index, response));
        if is_over {
            end = End::Stopped;
            break;
        }
    }
    drop(running);

    answers.sort_by_key(|(last, index, _)| (*last, *index));
    let mut tally = Tally::new(request.messages());
    for (_, _, response) in &answers {
        tally.add(response);
    }
    Ok(tally.response(request.context(), end))
}
