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
use tower_agent::{
    Agent, AgentRequest, AgentResponse, Checkpoint, Message, ModelRequest, ModelResponse, Part,
    Resolution, Role, Tool,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_test::{ScriptedModel, Turn};

/// What a member does: the number of calls in each turn, before it says that it is done.
#[derive(Clone, Debug)]
struct Member {
    name: String,
    turns: Vec<usize>,
    waits: bool,
}

#[derive(Clone, Copy, Debug)]
enum Within {
    Nothing,
    Sequence,
    Parallel,
    Tool,
}

/// The team, as a list of members or as a list of tasks.
#[derive(Clone, Debug)]
struct Case {
    members: Vec<Member>,
    is_for_tasks: bool,
    within: Within,
}

/// An agent that reads from its conversation which member it is, if there are several, and how far
/// it is, as a model does. Every call of each of them has the same name and the same ids.
fn member(name: &str, members: &[Member], asks: bool) -> Agent {
    let all = members.to_vec();
    let model = tower::service_fn(move |request: ModelRequest| {
        let messages = request.messages();
        let mut words = messages.iter().rev();
        let task = words.find(|message| message.role() == Role::User);
        let task = task.map(Message::text).unwrap_or_default();
        let own = all.iter().find(|member| member.name == task);
        let Member { name, turns, waits } = own.unwrap_or(&all[0]).clone();
        let turn = messages
            .iter()
            .filter(|message| {
                message
                    .tool_calls()
                    .any(|call| call.arguments.to_string().contains(&name))
            })
            .count();
        let tool = if waits { "ask" } else { "act" };
        let message = match turns.get(turn) {
            Some(&count) => Message::new(
                Role::Assistant,
                (0..count).map(|number| {
                    let id = format!("call_{turn}_{number}");
                    Part::from(ToolCall::new(id, tool, json!({ "of": name })))
                }),
            ),
            None => Message::assistant(format!("{name} is done")),
        };
        let model = ScriptedModel::new([Turn::response(ModelResponse::new(message))]);
        model.chunk_size(3).oneshot(request)
    });
    let tool = |name: &str| Tool::function(name, "", |of: Value| format!("{} acted", of["of"]));
    let builder = Agent::builder(model)
        .name(name)
        .tools([tool("act"), tool("ask")]);
    let builder = if asks {
        builder.on_tool(Approval::of_tools(["ask"]))
    } else {
        builder
    };
    builder.build().unwrap()
}

fn saying(name: &str, text: &str) -> Agent {
    let model = ScriptedModel::always(Turn::from_text(text)).chunk_size(3);
    Agent::builder(model).name(name).build().unwrap()
}

/// Builds the team. `begins` means that this run is the first.
fn team(case: &Case, asks: bool, begins: bool) -> Agent {
    let members = &case.members;
    let team = if case.is_for_tasks {
        let names: Vec<_> = members.iter().map(|member| member.name.clone()).collect();
        let worker = member("worker", members, asks);
        let team = Agent::for_each("team", worker, move |_| {
            assert!(begins, "a run that resumes has its tasks");
            Ok(names.clone())
        });
        team.concurrency(2)
    } else {
        let members = members
            .iter()
            .map(|one| member(&one.name, std::slice::from_ref(one), asks));
        Agent::parallel("team").agents(members)
    };
    let team = team.build().unwrap();
    match case.within {
        Within::Nothing => team,
        Within::Sequence => Agent::sequential("sequence")
            .agents([saying("first", "begin"), team, saying("last", "end")])
            .build()
            .unwrap(),
        Within::Parallel => {
            let another = Member {
                name: "another".into(),
                turns: vec![1],
                waits: true,
            };
            Agent::parallel("outer")
                .agents([saying("before", "before"), team])
                .agent(member("another", &[another], asks))
                .agent(saying("beside", "beside"))
                .build()
                .unwrap()
        }
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
            EventKind::AttemptDiscarded { message, .. }
            | EventKind::ResponseReplaced { message } => {
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
    case: &Case,
    mut chosen: impl Iterator<Item = usize>,
) -> (AgentResponse, Vec<Event>) {
    let mut agent = team(case, true, true);
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
        if !matches!(case.within, Within::Tool) {
            // The boss has a script; the others read the conversation.
            agent = team(case, true, false);
        }
        let request = AgentRequest::resume(checkpoint).with_resolutions(answers);
        response = read(&agent, request, &mut events).await;
    }
    (response, events)
}

fn check(case: &Case, chosen: Vec<usize>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let alone = team(case, false, true).run("?").await.unwrap();
        let (response, events) = answered(case, chosen.into_iter().cycle()).await;
        assert_eq!(lines(&response), lines(&alone));
        assert_eq!(response.text(), alone.text());
        check_events(&events);
        if !matches!(case.within, Within::Tool) {
            let mut seen = left(&events);
            let mut answered = said(response.messages().iter());
            seen.sort();
            answered.sort();
            assert_eq!(seen, answered);
        }
    });
}

fn case() -> impl Strategy<Value = Case> {
    let within = prop_oneof![
        3 => Just(Within::Nothing),
        1 => Just(Within::Sequence),
        1 => Just(Within::Parallel),
        1 => Just(Within::Tool),
    ];
    let members = prop::collection::vec(
        (prop::collection::vec(1..3usize, 0..3), any::<bool>()),
        1..4,
    );
    (members, any::<bool>(), within).prop_map(|(members, is_for_tasks, within)| Case {
        members: members
            .into_iter()
            .enumerate()
            .map(|(index, (turns, waits))| Member {
                // Their names are not in the members' order.
                name: format!("{}_member", 9 - index),
                turns,
                waits,
            })
            .collect(),
        is_for_tasks,
        within,
    })
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn a_pause_changes_nothing_for_the_transcript_or_the_reader(
        case in case(),
        chosen in prop::collection::vec(0..60usize, 1..12),
    ) {
        check(&case, chosen);
    }
}

#[test]
fn two_members_that_wait_are_answered_at_once_or_one_by_one() {
    let member = |name: &str, turns: &[usize]| Member {
        name: name.into(),
        turns: turns.to_vec(),
        waits: true,
    };
    for is_for_tasks in [false, true] {
        let case = Case {
            members: vec![
                member("left", &[1]),
                member("middle", &[]),
                member("right", &[1]),
            ],
            is_for_tasks,
            within: Within::Nothing,
        };
        // The first number says how many are answered, the others which.
        for chosen in [vec![1, 0, 0], vec![1, 1, 0], vec![0, 0], vec![0, 1, 0, 0]] {
            check(&case, chosen);
        }
    }
}
