//! Parallel teams.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::config::Config;
use crate::agent::team_response::TeamResponse;
use crate::agent::waiting::whose_turn;
use crate::call::Request;
use crate::conversation::Record;
use crate::error::Result;
use crate::message::Messages;
use crate::run::{AgentRequest, AgentResponse, EndReason};

pub(super) async fn run(team: &Config, request: &AgentRequest) -> Result<AgentResponse> {
    let context = request.context();
    let record = context.record();
    let request_messages = request.messages();
    let messages = context.begin(request_messages);
    // A resumed conversation is for the members that it waits for; the others have finished.
    let held = team
        .members
        .iter()
        .map(|member| record.held(&context.holds(member.name())));
    let mut held: Vec<_> = held.collect();
    let goes_on = held.iter().any(Option::is_some);
    if !goes_on {
        whose_turn(context, &team.members, &messages)?;
        context.take_turn(messages.len());
        for (member, held) in team.members.iter().zip(&mut held) {
            let all = Record::with_request(&messages);
            // Held before they run, so that the checkpoint of a run that is dropped has each
            // member's progress.
            record.hold(context.holds(member.name()), all.clone());
            *held = Some(all);
        }
    }

    let mut running = FuturesUnordered::new();
    let mut turns = Vec::with_capacity(team.members.len());
    for (index, (member, record)) in team.members.iter().zip(held).enumerate() {
        let Some(record) = record else { continue };
        let turn = Turn::new(index, record, goes_on);
        if turn.is_done {
            turns.push(turn);
        } else {
            let request = request
                .hand_over(turn.request.clone())
                .with_record(turn.record.clone());
            let (context, run) = member.join(request);
            running.push(async move { (turn, context, run.await) });
        }
    }

    let mut waits = false;
    let mut end = EndReason::Completed;
    while let Some((mut turn, context, result)) = running.next().await {
        // An error drops the other members.
        let response = result?;
        waits |= !response.interrupts().is_empty();
        // An interrupted member must be answered, so the others do not end the team after that.
        let is_over = !waits && team.is_over(&context, &response)?;
        // The member that ended the team comes last, and open calls stay last.
        turn.last = is_over || !response.interrupts().is_empty();
        turn.response = Some(response);
        turns.push(turn);
        if is_over {
            end = EndReason::StopCondition;
            break;
        }
    }
    drop(running);

    // Results follow their calls, so the member that continues the transcript comes first.
    turns.sort_by_key(|turn| (!turn.goes_on, turn.last, turn.index));
    let goes_on_later = turns.iter().any(|turn| turn.goes_on && turn.waits());
    let mut tally = TeamResponse::since(request_messages.len(), messages, 0);
    let count = turns.len();
    for (position, turn) in turns.into_iter().enumerate() {
        // A transcript has room for one interrupted member, at its end.
        let is_told = if goes_on_later {
            turn.goes_on
        } else {
            !turn.waits() || position + 1 == count
        };
        if is_told {
            turn.add_to(&mut tally);
        }
        if let Some(response) = &turn.response {
            tally.count(response);
        }
        if turn.waits() || !is_told {
            turn.record_shared(is_told);
        } else {
            record.release(&context.holds(team.members[turn.index].name()));
        }
    }
    // The transcript and the held conversations change together: the run may be dropped right after
    // this.
    record.set(tally.messages().clone());
    // A member that was dropped has no later turn.
    if !tally.waits() {
        team.members
            .iter()
            .for_each(|member| record.release(&context.holds(member.name())));
    }
    Ok(tally.response(context, end))
}

/// The turn of a member.
struct Turn {
    index: usize,
    record: Record,
    request: Messages,
    /// How many messages of the request are in the team's transcript as well.
    shared: usize,
    /// It had finished before.
    is_done: bool,
    /// The transcript ends with its open calls.
    goes_on: bool,
    last: bool,
    /// `None` if it had finished before.
    response: Option<AgentResponse>,
}

impl Turn {
    fn new(index: usize, record: Record, goes_on: bool) -> Self {
        let (shared, is_done) = record.shared_with_caller();
        let messages = record.save().messages;
        let goes_on = goes_on && shared == messages.len();
        let request = if is_done { messages } else { record.request() };
        Self {
            index,
            record,
            request,
            shared,
            is_done,
            goes_on,
            last: false,
            response: None,
        }
    }

    fn waits(&self) -> bool {
        self.response
            .as_ref()
            .is_some_and(|response| !response.interrupts().is_empty())
    }

    fn add_to(&self, tally: &mut TeamResponse) {
        tally.add_messages(self.request.range(self.shared));
        if let Some(response) = &self.response {
            tally.add_messages(response.new_messages());
        }
    }

    /// Records what a resumed run needs.
    fn record_shared(&self, is_shared: bool) {
        let Some(response) = &self.response else {
            return;
        };
        let length = response.messages().len();
        // A `before_agent` may have shortened the member's request.
        let begun = length - response.new_messages().len();
        self.record.share_with_caller(if is_shared {
            length
        } else {
            (self.shared + begun).saturating_sub(self.request.len())
        });
    }
}
