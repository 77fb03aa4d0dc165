//! Parallel teams.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::config::TeamConfig;
use crate::agent::team_response::TeamResponse;
use crate::agent::waiting::whose_turn;
use crate::call::Request;
use crate::context::RunContext;
use crate::conversation::ConversationRecord;
use crate::error::Result;
use crate::message::{Message, Messages};
use crate::run::{AgentRequest, AgentResponse, EndReason};

pub(super) async fn run(team: &TeamConfig, request: &AgentRequest) -> Result<AgentResponse> {
    let context = request.context();
    let place = context.place();
    let record = &place.record;
    let request_messages = request.messages();
    let messages = place.begin(request_messages);
    // A resumed conversation is for the members that it waits for; the others have finished.
    let mut held = held(team, context);
    if held.is_empty() {
        whose_turn(context, &team.members, messages.in_call_order())?;
        held = begin(team, request, messages.in_call_order())?;
    }

    let mut turns = Vec::with_capacity(held.len());
    let mut waiting = Vec::new();
    // Results follow their calls directly, so the member that made the open calls comes first.
    let mut next = None;
    for (position, mut turn) in held.into_iter().enumerate() {
        if position == 0 && messages.in_call_order().open_calls().next().is_some() {
            turn.is_next = true;
            next = Some((turn.index, turn.record.clone()));
        }
        if turn.is_done {
            turns.push(turn);
        } else {
            waiting.push(turn);
        }
    }
    let mut waiting = waiting.into_iter();

    let mut waits = false;
    let mut end = EndReason::Completed;
    let mut failed = Vec::new();
    let mut running = FuturesUnordered::new();
    loop {
        let free = team.most_at_once() - running.len();
        for turn in waiting.by_ref().take(free) {
            let request = request
                .hand_over(turn.request.clone())
                .with_record(turn.record.clone());
            let member = team.member(turn.index);
            let (context, run) = member.join(&team.name(turn.index), request);
            running.push(async move { (turn, context, run.await) });
        }
        let Some((mut turn, member, result)) = running.next().await else {
            break;
        };
        let response = match result {
            Ok(response) => response,
            Err(error) if team.is_allowed(context, &error) => {
                failed.push((turn.index, error));
                continue;
            }
            // It drops the other members.
            Err(error) => return Err(error),
        };
        waits |= !response.interrupts().is_empty();
        // An interrupted member must be answered, so the others do not end the team after that.
        let is_over = !waits && team.is_over(&member, &response)?;
        turn.ends_team = is_over;
        turn.response = Some(response);
        turns.push(turn);
        if is_over {
            end = EndReason::StopCondition;
            break;
        }
    }
    drop(running);
    failed.sort_by_key(|(index, _)| *index);
    for (index, error) in &failed {
        if turns.is_empty() {
            return Err(error.clone());
        }
        let name = team.name(*index);
        tracing::warn!(run_id = context.run_id(), agent = context.path(), error = %error.to_string().escape_debug(), member = %name, "a member of a team failed; the team goes on");
        // It does not run again if another member waits.
        record.release(&place.below(&name));
    }
    let mut is_cut = false;
    if let Some((index, record)) = next
        && !turns.iter().any(|turn| turn.index == index)
    {
        // It has failed or was dropped. The transcript has its calls, so what it has done since
        // follows.
        is_cut = true;
        turns.push(MemberTurn::cut(index, record));
    }

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
            tally.add_messages(turn.messages());
        } else if let Some(emitter) = &context.listeners().emitter {
            emitter.hold(turn.messages());
        }
        if turn.waits() || !is_told {
            turn.record_shared(is_told);
        } else {
            record.release(&place.below(&team.name(turn.index)));
        }
        is_told &= !turn.waits();
    }
    if is_cut {
        let closed = tally.close_calls();
        context.listeners().tell_results(&closed).await;
    }
    // The transcript and the held conversations change together: the run may be dropped right after
    // this.
    record.set(tally.messages().clone());
    // A member that was dropped has no later turn.
    if !tally.waits() {
        for index in team.indices(context) {
            record.release(&place.below(&team.name(index)));
        }
    }
    Ok(tally.response(context, end))
}

/// Returns the turns of the members that an earlier run has begun and that are not in the
/// transcript.
fn held(team: &TeamConfig, context: &RunContext) -> Vec<MemberTurn> {
    let place = context.place();
    let mut turns = Vec::new();
    for index in team.indices(context) {
        let held = place.record.held(&place.below(&team.name(index)));
        turns.extend(held.map(|record| MemberTurn::new(index, record)));
    }
    turns
}

/// Begins the conversations of all members.
fn begin(
    team: &TeamConfig,
    request: &AgentRequest,
    messages: &Messages,
) -> Result<Vec<MemberTurn>> {
    let place = request.context().place();
    let conversations = team.conversations(request, messages)?;
    place.take_turn(messages.len());
    let mut turns = Vec::with_capacity(conversations.len());
    for (index, conversation) in conversations.iter().enumerate() {
        let own = ConversationRecord::with_request(conversation);
        own.share_with_caller(messages.len());
        // Held before they run, so that the checkpoint of a run that is dropped has each member's
        // progress.
        let at = place.below(&team.name(index));
        place.record.hold(at.to_string(), own.clone());
        turns.push(MemberTurn::new(index, own));
    }
    Ok(turns)
}

/// Returns the messages of members that an earlier run has shown and that are not in the transcript
/// yet.
pub(super) fn shown_before(team: &TeamConfig, context: &RunContext) -> Messages {
    let mut shown = Messages::new();
    for turn in held(team, context) {
        let messages = turn.record.save().messages;
        shown.extend(messages.range(turn.shared).cloned());
    }
    shown
}

/// The turn of a member.
struct MemberTurn {
    index: usize,
    record: ConversationRecord,
    request: Messages,
    /// The number of messages of the request that are in the team's transcript as well.
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

impl MemberTurn {
    fn new(index: usize, record: ConversationRecord) -> Self {
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

    /// Returns the turn of a member that did not come to its end.
    fn cut(index: usize, record: ConversationRecord) -> Self {
        Self {
            request: record.save().messages,
            is_next: true,
            ..Self::new(index, record)
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
