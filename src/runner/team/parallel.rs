//! Side by side.

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::Config;
use crate::agent::{AgentRequest, AgentResponse, End};
use crate::context::Conversation;
use crate::error::Result;
use crate::request::Request;
use crate::runner::agent::Agent;
use crate::runner::step::{self, Step};
use crate::runner::tally::Tally;
use crate::runner::waiting;

pub(super) async fn run(team: &Config, request: &AgentRequest) -> Result<AgentResponse> {
    let context = request.context();
    let path = |member: &Agent| waiting::path(context, member);
    // A resumed conversation is for those that it waits for; the others have answered.
    let mut waiting = Vec::new();
    if let Step::Tools(open) = step::next(request.messages()) {
        waiting.extend(team.members.iter().map(|member| context.take_suspended(&path(member))));
        if waiting.iter().all(Option::is_none) {
            waiting = team.members.iter().map(|m| m.answers(&open).then(|| all(request))).collect();
        }
    }
    let is_resumed = waiting.iter().any(Option::is_some);
    if !is_resumed {
        waiting = team.members.iter().map(|_| Some(all(request))).collect();
    }

    let mut running = FuturesUnordered::new();
    let mut turns = Vec::with_capacity(team.members.len());
    for (index, (member, conversation)) in team.members.iter().zip(waiting).enumerate() {
        let Some(conversation) = conversation else { continue };
        let goes_on = is_resumed && conversation.told == conversation.messages.len();
        let turn = Turn { index, goes_on, last: false, conversation, response: None };
        if turn.conversation.done {
            turns.push(turn);
        } else {
            let messages = turn.conversation.messages.clone();
            let (context, run) = member.join(request.hand_over(messages));
            running.push(async move { (turn, context, run.await) });
        }
    }

    let mut waits = false;
    let mut end = End::Finished;
    while let Some((mut turn, context, result)) = running.next().await {
        // An error drops the members beside it.
        let response = result?;
        waits |= !response.pending().is_empty();
        let is_over = !waits && team.is_over(&context, &response);
        // Whoever has ended the team has the last word, and open calls stay last.
        turn.last = is_over || !response.pending().is_empty();
        turn.response = Some(response);
        turns.push(turn);
        if is_over {
            end = End::Stopped;
            break;
        }
    }
    drop(running);

    // Answers follow their calls, so whoever goes on with the transcript comes first.
    turns.sort_by_key(|turn| (!turn.goes_on, turn.last, turn.index));
    let goes_on_later = turns.iter().any(|turn| turn.goes_on && turn.waits());
    let mut tally = Tally::new(request.messages());
    let count = turns.len();
    for (place, turn) in turns.into_iter().enumerate() {
        // A transcript has room for one that waits, at its end.
        let is_told = match goes_on_later {
            true => turn.goes_on,
            false => !turn.waits() || place + 1 == count,
        };
        if is_told {
            turn.tell(&mut tally);
        }
        if let Some(response) = &turn.response {
            tally.count(response);
        }
        if turn.waits() || !is_told {
            let path = path(&team.members[turn.index]);
            context.suspend(path, turn.rest(is_told));
        }
    }
    Ok(tally.response(context, end))
}

/// What became of a member.
struct Turn {
    index: usize,
    /// The transcript ends with its open calls.
    goes_on: bool,
    last: bool,
    conversation: Conversation,
    /// None for one that was done before.
    response: Option<AgentResponse>,
}

impl Turn {
    fn waits(&self) -> bool {
        self.response.as_ref().is_some_and(|response| !response.pending().is_empty())
    }

    fn tell(&self, tally: &mut Tally) {
        tally.tell(self.conversation.messages.range(self.conversation.told));
        if let Some(response) = &self.response {
            tally.tell(response.new_messages());
        }
    }

    /// What the run that resumes needs of it.
    fn rest(self, is_told: bool) -> Conversation {
        let done = !self.waits();
        let Some(response) = self.response else { return self.conversation };
        let Conversation { messages: given, told, .. } = self.conversation;
        let messages = response.messages().clone();
        // A `before_agent` may have shortened what the member was given.
        let begun = messages.len() - response.new_messages().len();
        let told = match is_told {
            true => messages.len(),
            false => (told + begun).saturating_sub(given.len()),
        };
        Conversation { messages, told, done }
    }
}

/// The conversation as the team was given it.
fn all(request: &AgentRequest) -> Conversation {
    let messages = request.messages().clone();
    Conversation { told: messages.len(), messages, done: false }
}
