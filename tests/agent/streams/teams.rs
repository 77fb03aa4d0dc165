//! A parallel team whose members wait: its transcript, and the reader of all its runs.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use proptest::prelude::*;
use serde_json::{Value, json};
use test_support::property::cases;
use test_support::transcript::{left, said};
use tower::ServiceExt;
use tower_agent::message::ToolCall;
use tower_agent::stream::{Event, EventKind};
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::{
    Agent, AgentRequest, AgentResponse, Checkpoint, Message, ModelRequest, ModelResponse, Part,
    Resolution, Role, Tool,
};
use tower_agent_middleware::approval::{Approval, Decision};

/// The number of calls in each turn of a member, before it says that it is done.
type Turns = Vec<usize>;

#[derive(Clone, Copy, Debug)]
enum Within {
    Nothing,
    Sequence,
    Parallel,
    Tool,
}

/// A member that reads from its conversation how far it is, as a model does. Every call of each of
/// them has the same name, and those of a turn have the ids that other members use too.
fn member(name: &str, turns: &Turns, asks: bool) -> Agent {
    let (own, turns) = (name.to_owned(), turns.clone());
    let model = tower::service_fn(move |request: ModelRequest| {
        let asked = request.messages().iter();
        let asked = asked.filter(|message| message.tool_calls().any(|call| &*call.name == "act"));
        let turn = asked.count();
        let message = match turns.get(turn) {
            Some(&count) => Message::new(
                Role::Assistant,
                (0..count).map(|number| {
                    let id = format!("call_{turn}_{number}");
                    Part::from(ToolCall::new(id, "act", json!({ "of": own })))
                }),
            ),
            None => Message::assistant(format!("{own} is done")),
        };
        let model = ScriptedModel::new([Turn::response(ModelResponse::new(message))]);
        model.chunk_size(3).oneshot(request)
    });
    let act = Tool::function("act", "", |of: Value| format!("{} acted", of["of"]));
    let builder = Agent::builder(model).name(name).tool(act);
    let builder = if asks {
        builder.on_tool(Approval::of_tools(["act"]))
    } else {
        builder
    };
    builder.build().unwrap()
}

fn saying(name: &str, text: &str) -> Agent {
    let model = ScriptedModel::always(Turn::from_text(text)).chunk_size(3);
    Agent::builder(model).name(name).build().unwrap()
}

fn team(members: &[(Turns, bool)], within: Within, asks: bool) -> Agent {
    let members = members.iter().enumerate().map(|(index, (turns, waits))| {
        // Their names are not in the members' order.
        member(&format!("{}_member", 9 - index), turns, *waits && asks)
    });
    let team = Agent::parallel("team").agents(members).build().unwrap();
    match within {
        Within::Nothing => team,
        Within::Sequence => Agent::sequential("sequence")
            .agents([saying("first", "begin"), team, saying("last", "end")])
            .build()
            .unwrap(),
        Within::Parallel => Agent::parallel("outer")
            .agents([saying("before", "before"), team])
            .agent(member("another", &vec![1], asks))
            .agent(saying("beside", "beside"))
            .build()
            .unwrap(),
        Within::Tool => {
            let calls = Turn::tool("team", json!({ "request": "Act!" }));
            let model = ScriptedModel::new([calls, Turn::from_text("so")]);
            Agent::builder(model)
                .name("boss")
                .tool(team.into_tool("Acts."))
                .build()
                .unwrap()
        }
    }
}

/// Returns a message as one line, without its id.
fn line(message: &Message) -> String {
    let calls = message
        .tool_calls()
        .map(|call| format!("{} {} {}", call.id, call.name, call.arguments));
    let results = message
        .tool_results()
        .map(|result| format!("{}: {}", result.call_id, result.text()));
    let parts: Vec<_> = calls.chain(results).collect();
    format!(
        "{:?} {}{}",
        message.role(),
        message.text(),
        parts.join(", ")
    )
}

fn lines(response: &AgentResponse) -> Vec<String> {
    response.messages().iter().map(line).collect()
}

async fn read(agent: &Agent, request: AgentRequest, events: &mut Vec<Event>) -> AgentResponse {
    let mut run = agent.stream(request);
    while let Some(event) = run.next().await {
        events.push(event);
    }
    run.response().await.unwrap()
}

/// Fails unless every result follows its call, once, and nothing is shown twice or taken back.
fn check_events(events: &[Event]) {
    let mut calls = BTreeMap::new();
    let mut texts = BTreeSet::new();
    for event in events {
        match &event.kind {
            EventKind::ToolCallStart(call) => {
                let earlier = calls.insert(call.id.clone(), 0);
                assert_eq!(earlier, None, "the call {} is shown twice", call.id);
            }
            EventKind::ToolResult(result) => match calls.get_mut(&result.id) {
                Some(results) => *results += 1,
                None => panic!("a result of the call {}, which nobody has seen", result.id),
            },
            EventKind::TextStart { message } => {
                assert!(texts.insert(message.clone()), "{message} is shown twice");
            }
            EventKind::AttemptDiscarded { message } | EventKind::ResponseReplaced { message } => {
                panic!("{message} is taken back")
            }
            _ => {}
        }
    }
    let results: Vec<_> = calls.values().collect();
    assert!(results.iter().all(|count| **count == 1), "{results:?}");
}

/// Runs the team until it is done. Each pause goes on in another process, with answers to the
/// interrupts that `chosen` selects, in an order of its own.
async fn answered(
    members: &[(Turns, bool)],
    within: Within,
    mut chosen: impl Iterator<Item = usize>,
) -> (AgentResponse, Vec<Event>) {
    let mut agent = team(members, within, true);
    let mut events = Vec::new();
    let mut response = read(&agent, AgentRequest::new("?"), &mut events).await;
    while !response.interrupts().is_empty() {
        let mut open: Vec<_> = response.interrupts().to_vec();
        let ids: BTreeSet<_> = open.iter().map(|interrupt| &interrupt.id).collect();
        assert_eq!(ids.len(), open.len(), "each question has an id of its own");
        let count = 1 + chosen.next().unwrap() % open.len();
        let mut answers = Vec::new();
        for _ in 0..count {
            let interrupt = open.remove(chosen.next().unwrap() % open.len());
            answers.push(Resolution::resolved(&interrupt.id, Decision::Approve));
        }
        let saved = serde_json::to_string(&response.checkpoint()).unwrap();
        let checkpoint: Checkpoint = serde_json::from_str(&saved).unwrap();
        if !matches!(within, Within::Tool) {
            // The boss has a script; the others read the conversation.
            agent = team(members, within, true);
        }
        let request = AgentRequest::resume(checkpoint).with_resolutions(answers);
        response = read(&agent, request, &mut events).await;
    }
    (response, events)
}

fn check(members: &[(Turns, bool)], within: Within, chosen: Vec<usize>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let alone = team(members, within, false).run("?").await.unwrap();
        let (response, events) = answered(members, within, chosen.into_iter().cycle()).await;
        assert_eq!(lines(&response), lines(&alone));
        assert_eq!(response.text(), alone.text());
        check_events(&events);
        if !matches!(within, Within::Tool) {
            let mut seen = left(&events);
            let mut answered = said(response.messages().iter());
            seen.sort();
            answered.sort();
            assert_eq!(seen, answered);
        }
    });
}

fn within() -> impl Strategy<Value = Within> {
    prop_oneof![
        3 => Just(Within::Nothing),
        1 => Just(Within::Sequence),
        1 => Just(Within::Parallel),
        1 => Just(Within::Tool),
    ]
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn a_pause_changes_nothing_for_the_transcript_or_the_reader(
        members in prop::collection::vec((prop::collection::vec(1..3usize, 0..3), any::<bool>()), 1..4),
        within in within(),
        chosen in prop::collection::vec(0..60usize, 1..12),
    ) {
        check(&members, within, chosen);
    }
}

#[test]
fn two_members_that_wait_are_answered_at_once_or_one_by_one() {
    let members = [(vec![1], true), (vec![], false), (vec![1], true)];
    // The first numbers say how many are answered, the others which.
    for chosen in [vec![1, 0, 0], vec![1, 1, 0], vec![0, 0], vec![0, 1, 0, 0]] {
        check(&members, Within::Nothing, chosen);
    }
}
