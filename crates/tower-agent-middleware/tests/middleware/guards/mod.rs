//! Ready-made guards, and the resuming of runs that they interrupt.

mod adaptive_concurrency;
mod approval;
mod budget;
mod cache;
mod chaos;
mod circuit_breaker;
mod context_window;
mod emulate;
mod ended;
mod explained;
mod extremes;
mod fallback;
mod flow;
mod guardrail;
mod hedge;
mod keys;
mod ledger;
mod ledger_trees;
mod loop_guard;
mod mock;
mod no_answers;
mod orders;
mod pool;
mod rate_limit;
mod redact;
mod resuming;
mod retry;
mod router;
mod timeout;
mod todo;
mod tool_search;
pub(crate) mod watch;

use tower_agent::message::Messages;
use tower_agent::{AgentResponse, Checkpoint, Message, Resolution, Role};

/// Returns an interrupted run as another process finds it.
pub(crate) fn saved(response: &AgentResponse) -> Checkpoint {
    let saved = serde_json::to_string(&response.checkpoint()).unwrap();
    serde_json::from_str(&saved).unwrap()
}

pub(crate) fn ids(response: &AgentResponse) -> Vec<String> {
    response
        .interrupts()
        .iter()
        .map(|pending| pending.id.clone())
        .collect()
}

/// Returns the names of the open questions.
pub(crate) fn names(response: &AgentResponse) -> Vec<String> {
    let open = response.interrupts().iter();
    open.map(|pending| pending.name.clone()).collect()
}

/// Returns these answers, which have the names of open questions, with the ids of those.
pub(crate) fn to_open(
    paused: &AgentResponse,
    answers: impl IntoIterator<Item = Resolution>,
) -> Vec<Resolution> {
    let mut answers = Vec::from_iter(answers);
    for answer in &mut answers {
        let mut open = paused.interrupts().iter();
        if let Some(asked) = open.find(|open| open.name == answer.id) {
            answer.id.clone_from(&asked.id);
        }
    }
    answers
}

/// Returns the tools' answers in this run.
pub(crate) fn results(response: &AgentResponse) -> Vec<String> {
    let results = response.new_messages().flat_map(Message::tool_results);
    results.map(|result| result.text()).collect()
}

/// Asserts what providers ask of a transcript: answers follow the calls, and none is missing.
#[track_caller]
pub(crate) fn assert_answered(messages: &Messages) {
    let all: Vec<_> = messages.iter().collect();
    for (index, message) in all.iter().enumerate() {
        let after = all[index + 1..]
            .iter()
            .take_while(|message| message.role() == Role::Tool);
        let mut answered: Vec<_> = after
            .flat_map(|m| m.tool_results())
            .map(|r| &*r.call_id)
            .collect();
        let mut asked: Vec<_> = message.tool_calls().map(|call| &*call.id).collect();
        if message.role() == Role::Assistant {
            answered.sort();
            asked.sort();
            assert_eq!(asked, answered, "after message {index} of {messages:?}");
        }
    }
}
