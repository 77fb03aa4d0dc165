//! Whatever happens on the way: what was seen and not taken back is what was answered.

use proptest::prelude::*;
use serde_json::{Value, json};
use tower_agent::callback::{
    after_agent, after_model, before_agent, before_model, on_agent_error, on_model_error,
};
use tower_agent::message::ToolCall;
use tower_agent::stream::{Delta, Event, EventKind, map_fn};
use tower_agent::{
    Action, Agent, AgentResponse, Error, ErrorKind, Message, ModelResponse, Part, Recovery, Role,
    Tool,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::read;
use test_support::property::cases;
use test_support::transcript::{left, said};

#[derive(Clone, Debug)]
enum Said {
    Text(String),
    Thought(String),
    Calls(u8),
}

fn turn() -> impl Strategy<Value = (Said, Option<usize>)> {
    let said = prop_oneof![
        "[a-c]{0,9}".prop_map(Said::Text),
        "[a-c]{1,5}".prop_map(Said::Thought),
        (1..4u8).prop_map(Said::Calls),
    ];
    (said, prop::option::weighted(0.3, 0..3usize))
}

fn script(turns: Vec<(Said, Option<usize>)>, name: &str) -> ScriptedModel {
    let turns = turns.into_iter().enumerate().map(|(index, (said, fails))| {
        let turn = match said {
            Said::Text(text) => Turn::from_text(text),
            Said::Thought(thought) => Turn::response(super::thinks(&thought)),
            Said::Calls(count) => Turn::response(ModelResponse::new(Message::new(
                Role::Assistant,
                (0..count).map(|number| {
                    let id = format!("{name}-{index}-{number}");
                    Part::from(ToolCall::new(id, "echo", json!(number)))
                }),
            ))),
        };
        match fails {
            None => turn,
            Some(after) => turn.failing_after(after, Error::new(ErrorKind::Overloaded, "busy")),
        }
    });
    ScriptedModel::new(turns.chain([Turn::from_text("end")])).chunk_size(2)
}

/// The layers and callbacks around the model and the agent.
#[derive(Clone, Copy, Debug)]
enum Around {
    Retry,
    Fallback,
    Replace,
    Shout,
    Answer,
    AgentRetry,
    AgentFallback,
    AgentReplace,
    AgentAnswer,
}

fn around() -> impl Strategy<Value = Around> {
    prop::sample::select(vec![
        Around::Retry,
        Around::Fallback,
        Around::Replace,
        Around::Shout,
        Around::Answer,
        Around::AgentRetry,
        Around::AgentFallback,
        Around::AgentReplace,
        Around::AgentAnswer,
    ])
}

fn agent(turns: Vec<(Said, Option<usize>)>, around: &[Around], name: &str) -> Agent {
    let model = script(turns, name);
    let echo = Tool::function("echo", "Says it again.", |value: Value| value);
    let mut builder = Agent::builder(model).name(name).tool(echo);
    for around in around {
        builder = match around {
            Around::Retry => builder.on_model(on_model_error(|_, _| Recovery::Retry)),
            Around::Fallback => builder.on_model(on_model_error(|_, _| {
                Recovery::Fallback(ModelResponse::from_text("fell back"))
            })),
            Around::Replace => builder.on_model(after_model(|request, _| {
                match request.messages().len() % 2 {
                    0 => Action::Continue,
                    _ => Action::Respond(ModelResponse::from_text("replaced")),
                }
            })),
            Around::Shout => builder.on_model(before_model(|request| {
                request.map_deltas(|| {
                    map_fn(|delta| match delta {
                        Delta::Text(text) => vec![Delta::Text(text.to_uppercase())],
                        Delta::Reasoning(_) => vec![],
                        other => vec![other],
                    })
                });
            })),
            Around::Answer => {
                builder.on_model(before_model(|request| match request.messages().len() {
                    3 => Action::Respond(ModelResponse::from_text("answered before")),
                    _ => Action::Continue,
                }))
            }
            Around::AgentRetry => builder.on_agent(on_agent_error(|_, _| Recovery::Retry)),
            Around::AgentFallback => builder.on_agent(on_agent_error(|_, _| {
                Recovery::Fallback(AgentResponse::new([Message::assistant("fell back")]))
            })),
            Around::AgentReplace => builder.on_agent(after_agent(|_, _| {
                Action::Respond(AgentResponse::new([Message::assistant(
                    "the end, replaced",
                )]))
            })),
            Around::AgentAnswer => builder.on_agent(before_agent(|_| {
                Action::Respond(AgentResponse::new([Message::assistant("at once")]))
            })),
        };
    }
    builder.build().unwrap()
}

fn check(agent: &Agent, side_by_side: bool) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let (events, response) = runtime.block_on(read(agent.stream("?")));
    let terminal = |event: &Event| {
        matches!(
            event.kind,
            EventKind::RunFinished { .. }
                | EventKind::RunFailed { .. }
                | EventKind::RunInterrupted { .. }
        )
    };
    prop_assert_eq!(events.iter().filter(|event| terminal(event)).count(), 1);
    prop_assert!(terminal(events.last().unwrap()));
    let mut left = left(&events);
    if let Ok(response) = response {
        let mut said = said(response.new_messages());
        // They are seen in the order in which they speak.
        if side_by_side {
            left.sort();
            said.sort();
        }
        prop_assert_eq!(left, said);
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn an_agent_leaves_its_reader_with_what_it_has_said(
        turns in prop::collection::vec(turn(), 0..4),
        around in prop::collection::vec(around(), 0..4),
    ) {
        check(&agent(turns, &around, "agent"), false)?;
    }

    #[test]
    fn so_does_a_team(
        members in prop::collection::vec((prop::collection::vec(turn(), 0..3), prop::collection::vec(around(), 0..3)), 1..4),
        side_by_side: bool,
    ) {
        let team = if side_by_side { Agent::parallel("team") } else { Agent::sequential("team") };
        let members = members.into_iter().enumerate().map(|(index, (turns, around))| {
            agent(turns, &around, &format!("member{index}"))
        });
        check(&team.agents(members).build().unwrap(), side_by_side)?;
    }
}
