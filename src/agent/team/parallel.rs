//! Parallel teams.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::config::Config;
use crate::agent::team_response::TeamResponse;
use crate::agent::waiting::whose_turn;
use crate::call::Request;
use crate::context::RunContext;
use crate::conversation::Record;
use crate::error::Result;
use crate::message::{Message, Messages};
use crate::run::{AgentRequest, AgentResponse, EndReason};

pub(super) async fn run(team: &Config, request: &AgentRequest) -> Result<AgentResponse> {
    let context = request.context();
    let record = context.record();
    let request_messages = request.messages();
    let messages = context.begin(request_messages);
    // A resumed conversation is for the members that it waits for; the others have finished.
    let mut held = held(team, context);
    if held.iter().all(Option::is_none) {
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
    // Results follow their calls directly, so the member that made the open calls comes first.
    let mut is_next = messages.open_calls().next().is_some();
    for (index, (member, record)) in team.members.iter().zip(held).enumerate() {
        let Some(record) = record else { continue };
        let mut turn = Turn::new(index, record);
        turn.is_next = std::mem::take(&mut is_next);
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
        turn.ends_team = is_over;
        turn.response = Some(response);
        turns.push(turn);
        if is_over {
            end = EndReason::StopCondition;
            break;
        }
    }
    drop(running);

    turns.sort_by_key(|turn| (!turn.is_next, turn.ends_team, turn.index));
    let mut tally = TeamResponse::since(request_messages.len(), messages, 0);
    // A transcript has room for one interrupted member, at its end. Those after it follow once it
    // has finished, so the transcript is the same in the end as without the interrupt.
    let mut is_told = true;
    for turn in turns {
        if let Some(response) = &turn.response {
            tally.count(response);
        }
        if is_told {
            turn.add_to(&mut tally);
        } else if let Some(emitter) = context.emitter() {
            emitter.hold(turn.messages());
        }
        if turn.waits() || !is_told {
            turn.record_shared(is_told);
        } else {
            record.release(&context.holds(team.members[turn.index].name()));
        }
        is_told &= !turn.waits();
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

/// Returns the conversations of the members that an earlier run has begun and that are not in the
/// transcript.
fn held(team: &Config, context: &RunContext) -> Vec<Option<Record>> {
    let members = team.members.iter();
    members
        .map(|member| context.record().held(&context.holds(member.name())))
        .collect()
}

/// Returns the messages of members that an earlier run has shown and that are not in the transcript
/// yet.
pub(super) fn shown_before(team: &Config, context: &RunContext) -> Messages {
    let mut shown = Messages::new();
    for record in held(team, context).into_iter().flatten() {
        let (shared, _) = record.shared_with_caller();
        shown.extend(record.save().messages.range(shared).cloned());
    }
    shown
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
    is_next: bool,
    /// The team ends with its response.
    ends_team: bool,
    /// `None` if it had finished before.
    response: Option<AgentResponse>,
}

impl Turn {
    fn new(index: usize, record: Record) -> Self {
        let (shared, is_done) = record.shared_with_caller();
        let request = if is_done {
            record.save().messages
        } else {
            record.request()
        };
        Self {
            index,
            record,
            request,
            shared,
            is_done,
            is_next: false,
            ends_team: false,
            response: None,
        }
    }

    fn waits(&self) -> bool {
        self.response
            .as_ref()
            .is_some_and(|response| !response.interrupts().is_empty())
    }

    /// Returns the messages that the team's transcript does not have.
    fn messages(&self) -> impl Iterator<Item = &Message> {
        let new = self.response.iter().flat_map(AgentResponse::new_messages);
        self.request.range(self.shared).chain(new)
    }

    fn add_to(&self, tally: &mut TeamResponse) {
        tally.add_messages(self.messages());
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
