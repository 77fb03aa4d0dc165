//! Which events a run emits, and when.

use std::future::poll_fn;

use futures::StreamExt;
use serde_json::{Value, json};
use tower::ServiceBuilder;
use tower_agent::callback::{after_agent, after_model, before_agent, before_tool, on_model_error};
use tower_agent::stream::{Event, EventKind, Invocation};
use tower_agent::{
    Action, Agent, AgentRequest, Error, ErrorKind, Interrupt, Recovery, Request, RunStream, State,
    Tool, ToolRequest, ToolResponse, Usage,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::{read, thinks, word, words};

fn echo() -> Tool {
    Tool::function("echo", "Says it again.", |value: Value| value)
}

#[tokio::test]
async fn a_stream_has_the_events_of_a_run_from_start_to_end() {
    let model = ScriptedModel::new([
        Turn::response(thinks("hm"))
            .and_tool("echo", json!(1))
            .usage(Usage::new(2, 1)),
        Turn::from_text("one").usage(Usage::new(3, 1)),
    ]);
    let agent = Agent::builder(model).tool(echo()).build().unwrap();
    let request = AgentRequest::new("?").with_run_id("r");

    let (events, response) = read(agent.stream(request)).await;

    assert_eq!(
        words(&events),
        [
            "run",
            "state {}",
            "> agent",
            "step 0",
            "reasoning",
            "~hm",
            "reasoning over",
            "t0: echo",
            "t0: +1",
            "t0: over",
            "3 tokens",
            "call_1 -> 1",
            "step 0 over",
            "step 1",
            "text",
            "+one",
            "text over",
            "4 tokens",
            "step 1 over",
            "< agent",
            "finished",
        ]
    );
    assert!(matches!(&events[0].kind, EventKind::RunStarted { run } if &**run == "r"));
    assert_eq!(response.unwrap().text(), "one");
}

#[tokio::test]
async fn a_response_that_is_not_streamed_has_the_same_events() {
    let model = tower::service_fn(|_: tower_agent::ModelRequest| async {
        Ok::<_, Error>(tower_agent::ModelResponse::from_text("whole"))
    });
    let agent = Agent::builder(model).build().unwrap();

    let (events, _) = read(agent.stream("?")).await;

    assert_eq!(words(&events)[4..7], ["text", "+whole", "text over"]);
}

#[tokio::test]
async fn a_failed_run_says_why_and_fails_with_that() {
    let model = ScriptedModel::new([Turn::error(Error::new(ErrorKind::Auth, "who?"))]);
    let agent = Agent::builder(model).build().unwrap();

    let (events, response) = read(agent.stream("?")).await;

    let (words, kind) = (words(&events), ErrorKind::Auth);
    assert_eq!(
        words[words.len() - 3..],
        [
            "step 0 over".to_owned(),
            format!("< agent: {kind}"),
            format!("failed: {kind}")
        ]
    );
    assert_eq!(response.unwrap_err().message(), "who?");
}

#[tokio::test]
async fn an_interrupted_run_says_what_it_waits_for() {
    let model = ScriptedModel::new([Turn::tool("echo", json!(1))]);
    let agent = Agent::builder(model)
        .tool(echo())
        .on_tool(before_tool(|_| {
            Err::<(), _>(Error::interrupt(Interrupt::new("p", "confirmation")))
        }))
        .build()
        .unwrap();

    let (events, response) = read(agent.stream("?")).await;

    let Some(EventKind::RunInterrupted { interrupts }) = events.last().map(|event| &event.kind)
    else {
        panic!("{events:?}");
    };
    assert_eq!((&*interrupts[0].name, interrupts.len()), ("p", 1));
    assert_eq!(response.unwrap().interrupts()[0].name, "p");
    assert!(
        !words(&events).iter().any(|word| word.contains("->")),
        "the call has no result"
    );
}

/// A desk that asks a clerk, and one who says goodbye.
fn team() -> Agent {
    let inner = |name: &str, model| Agent::builder(model).name(name).build().unwrap();
    let clerk = inner("clerk", ScriptedModel::new([Turn::from_text("17")]));
    let model = ScriptedModel::new([
        Turn::tool("clerk", json!({ "request": "?" })),
        Turn::from_text("17!"),
    ]);
    let desk = Agent::builder(model)
        .name("desk")
        .tool(clerk.into_tool("Knows."))
        .build()
        .unwrap();
    let last = inner("last", ScriptedModel::new([Turn::from_text("Bye.")]));
    Agent::sequential("team")
        .agents([desk, last])
        .build()
        .unwrap()
}

#[tokio::test]
async fn events_taken_when_ready_are_those_of_the_stream() {
    let seen = |event: &Event| (event.invocation.path.clone(), word(event));
    let (events, _) = read(team().stream("?")).await;
    let mut run = team().stream("?");

    let mut ready = Vec::new();
    while poll_fn(|cx| run.poll_ready(cx)).await {
        let (invocation, kind) = run.ready().unwrap();
        let event = Event::new(invocation.clone(), kind.clone());
        let taken = run.take_ready().unwrap();
        assert_eq!(format!("{taken:?}"), format!("{:?}", event.kind));
        ready.push(seen(&event));
    }

    assert!(run.ready().is_none() && run.take_ready().is_none());
    assert_eq!(ready, events.iter().map(seen).collect::<Vec<_>>());
    assert!(run.response().await.is_ok());
}

#[tokio::test]
async fn agents_nest() {
    let (events, _) = read(team().stream("?")).await;

    let agents: Vec<_> = words(&events)
        .into_iter()
        .filter(|word| word.starts_with(['<', '>', '+']) && !word.contains("call_"))
        .collect();
    assert_eq!(
        agents,
        [
            "> team",
            "> team/desk",
            "> team/desk/clerk",
            "+17",
            "< team/desk/clerk",
            "+17!",
            "< team/desk",
            "> team/last",
            "+Bye.",
            "< team/last",
            "< team",
        ]
    );
    let of = |path: &str| {
        let event = events
            .iter()
            .find(|event| &*event.invocation.path == path)
            .unwrap();
        (*event.invocation).clone()
    };
    let (team, desk, clerk) = (of("team"), of("team/desk"), of("team/desk/clerk"));
    let caller = |of: &Invocation| of.caller.as_ref().map(|caller| caller.number);
    assert_eq!(
        [caller(&team), caller(&desk), caller(&clerk)],
        [None, Some(team.number), Some(desk.number)]
    );
    assert!(desk.goes_on && !clerk.goes_on);
    assert_eq!((desk.conversation(), clerk.conversation()), (&team, &clerk));
    assert_eq!(desk.tool_call, None);
    let starts = events.iter().find_map(|event| match &event.kind {
        EventKind::ToolCallStart(call) => Some(&call.id),
        _ => None,
    });
    assert_eq!(clerk.tool_call.as_ref(), starts);
    assert_eq!(clerk.agent(), "clerk");
}

#[tokio::test]
async fn changes_of_the_state_are_emitted_before_what_happens_next() {
    let tool = Tool::function_with("note", "Notes.", |_: Value, call: ToolRequest| {
        call.context().state().set("a/b", 2);
        call.context().state().remove("old");
        call.context().state().set("new~", json!([0]));
        call.context().state().set("new~", json!([1]));
        call.context().state().set("passing", 1);
        call.context().state().remove("passing");
    });
    let model = ScriptedModel::new([Turn::tool("note", json!(null)), Turn::from_text("done")]);
    let agent = Agent::builder(model).tool(tool).build().unwrap();
    let state = [
        ("a/b".to_owned(), json!(1)),
        ("old".to_owned(), json!(true)),
    ];
    let request = AgentRequest::new("?").with_state(State::from_iter(state));

    let (events, _) = read(agent.stream(request)).await;

    let words = words(&events);
    assert_eq!(words[1], r#"state {"a/b":1,"old":true}"#);
    let delta = words
        .iter()
        .position(|word| word.starts_with("delta"))
        .unwrap();
    let expected = json!({ "set": { "a/b": 2, "new~": [1] }, "removed": ["old"] });
    assert_eq!(
        serde_json::from_str::<Value>(&words[delta][6..]).unwrap(),
        expected
    );
    assert_eq!(words[delta + 1], "call_1 -> null");
}

#[tokio::test]
async fn callbacks_and_tools_tell_what_they_like() {
    let tool = Tool::function_with("work", "Works.", async |_: Value, call: ToolRequest| {
        call.context().emit("progress", 0.5).await;
        "done"
    });
    let model = ScriptedModel::new([Turn::tool("work", json!(null)), Turn::from_text("done")]);
    let agent = Agent::builder(model)
        .tool(tool)
        .on_agent(tower_agent::callback::before_agent_async(
            async |request: &mut AgentRequest| {
                request
                    .context()
                    .emit("hello", json!({ "to": "you" }))
                    .await;
            },
        ))
        .build()
        .unwrap();

    let (events, _) = read(agent.stream("?")).await;

    let words = words(&events);
    assert_eq!(words[3], r#"hello {"to":"you"}"#);
    let progress = words
        .iter()
        .position(|word| word == "progress 0.5")
        .unwrap();
    assert_eq!(words[progress + 1], "call_1 -> done");
    assert_eq!(agent_without_reader().await, "done");
}

/// Without a consumer, nothing waits.
async fn agent_without_reader() -> String {
    let model = ScriptedModel::new([Turn::from_text("done")]);
    let emit = async |request: &mut AgentRequest| {
        for _ in 0..1000 {
            request.context().emit("hello", 1).await;
        }
    };
    let agent = Agent::builder(model)
        .on_agent(tower_agent::callback::before_agent_async(emit))
        .build()
        .unwrap();
    agent.run("?").await.unwrap().text()
}

/// A callback of one hook only.
struct Nosy;

impl tower_agent::Callback<ToolRequest> for Nosy {
    async fn before(&self, _: &mut ToolRequest) -> tower_agent::Result<Action<ToolResponse>> {
        Ok(Action::Continue)
    }
}

#[tokio::test]
async fn every_hook_that_runs_is_noted_with_what_it_decided() {
    let model = ScriptedModel::new([
        Turn::error(Error::new(ErrorKind::Overloaded, "busy")),
        Turn::tool("echo", json!(1)),
        Turn::from_text("done"),
    ]);
    let agent = Agent::builder(model)
        .tool(echo())
        .on_agent(before_agent(|_| ()).named("greet"))
        .on_model(on_model_error(|_, _| tower_agent::Recovery::Retry).named("again"))
        .on_model(after_model(|_, _| Action::SkipRest).named("enough"))
        .on_tool(Nosy)
        .on_tool(before_tool(|_| Action::Respond(ToolResponse::new("no"))).named("forbid"))
        .build()
        .unwrap();

    let (events, _) = read(agent.stream("?")).await;

    let words = words(&events);
    let ours = ["greet", "again", "enough", "Nosy", "forbid"];
    let is_note = |word: &&String| ours.iter().any(|name| word.starts_with(name));
    let notes: Vec<_> = words.iter().filter(is_note).collect();
    assert_eq!(
        notes,
        [
            "greet agent before: Continue",
            "again model on_error: Retry",
            "enough model after: SkipRest",
            "Nosy tool before: Continue",
            "forbid tool before: Respond",
            "enough model after: SkipRest",
        ]
    );
}

#[tokio::test]
async fn any_service_around_an_agent_is_streamed_too() {
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("done")]))
        .build()
        .unwrap();
    let service = ServiceBuilder::new()
        .timeout(std::time::Duration::from_secs(60))
        .concurrency_limit(1)
        .service(agent);

    let (events, response) = read(RunStream::new(service, "?".into())).await;

    assert_eq!(words(&events).last().unwrap(), "finished");
    assert_eq!(response.unwrap().text(), "done");
}

#[tokio::test]
async fn a_note_says_which_call_of_a_turn_it_is_about() {
    let model = ScriptedModel::new([
        Turn::tool("echo", json!(1)).and_tool("echo", json!(2)),
        Turn::from_text("done"),
    ]);
    let agent = Agent::builder(model)
        .tool(echo())
        .on_tool(Nosy)
        .build()
        .unwrap();

    let (events, response) = read(agent.stream("?")).await;

    let noted: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Callback(note) if note.callback.ends_with("Nosy") => note.tool_call.clone(),
            _ => None,
        })
        .collect();
    let response = response.unwrap();
    let mut calls = Vec::new();
    for message in response.new_messages() {
        for (index, _) in message.tool_calls().enumerate() {
            calls.push(message.id().unwrap().tool_call(index));
        }
    }
    assert_eq!(noted, calls);
    assert_eq!(noted.len(), 2);
}

#[tokio::test]
async fn a_turn_ends_before_another_agent_takes_over() {
    let billing = Agent::builder(ScriptedModel::new([Turn::from_text("Paid.")])).name("billing");
    let hands = Turn::tool("transfer_to_agent", json!({ "agent_name": "billing" }));
    let desk = Agent::builder(ScriptedModel::new([hands]))
        .name("desk")
        .sub_agent(billing.build().unwrap())
        .build()
        .unwrap();

    let events: Vec<_> = desk.stream("?").collect().await;

    let told = events.iter().filter_map(|event| {
        let agent = event.invocation.agent();
        match event.kind {
            EventKind::AgentStarted => Some(format!("{agent}>")),
            EventKind::AgentFinished { .. } => Some(format!("<{agent}")),
            EventKind::StepStarted { .. } => Some(format!("{agent}(")),
            EventKind::StepFinished { .. } => Some(format!("){agent}")),
            _ => None,
        }
    });
    let told: Vec<_> = told.collect();
    assert_eq!(
        told.join(" "),
        "desk> desk( )desk billing> billing( )billing <billing <desk"
    );
}

#[tokio::test]
async fn events_serialise_as_one_object_each() {
    let model = ScriptedModel::new([
        Turn::response(thinks("hm")).and_tool("echo", json!(1)),
        Turn::error(Error::new(ErrorKind::Overloaded, "busy")),
        Turn::from_text("one"),
    ]);
    let agent = Agent::builder(model)
        .name("root")
        .tool(echo())
        .on_model(on_model_error(|_, _| Recovery::Retry).named("again"))
        .on_agent(after_agent(|request: &AgentRequest, _: &_| {
            request.context().state().set("done", true);
        }))
        .build()
        .unwrap();

    let (events, _) = read(agent.stream(AgentRequest::new("?").with_run_id("r"))).await;
    let json: Vec<Value> = events
        .iter()
        .map(|event| serde_json::to_value(event).unwrap())
        .collect();

    let of = |kind: &str| json.iter().find(|event| event["type"] == kind).unwrap();
    assert_eq!(of("run_started")["run"], "r");
    assert_eq!(of("agent_started")["invocation"]["path"], "root");
    assert_eq!(of("reasoning_delta")["text"], "hm");
    assert_eq!(of("tool_call_start")["name"], "echo");
    assert_eq!(
        of("tool_result")["parts"],
        json!([{ "type": "text", "text": "1" }])
    );
    assert_eq!(of("attempt_failed")["error"], "overloaded");
    assert_eq!(of("attempt_failed")["call"], "model");
    assert_eq!(of("callback")["callback"], "again");
    assert_eq!(of("callback")["decision"], "retry");
    assert_eq!(of("state_delta")["delta"]["set"], json!({ "done": true }));
    assert_eq!(of("run_finished")["reason"], "completed");
    // None is without its kind, its place and its time.
    for (number, event) in json.iter().enumerate() {
        assert_eq!(event["number"], number);
        assert!(
            event["type"].is_string() && event["time"].is_u64(),
            "{event}"
        );
    }
}
