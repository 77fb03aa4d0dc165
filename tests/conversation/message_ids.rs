//! A message has one id, wherever it is.

use std::collections::HashSet;

use futures::StreamExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_agent::callback::{after_agent, after_model, on_model_error};
use tower_agent::message::{MessageId, Messages};
use tower_agent::stream::{Event, EventKind};
use tower_agent::{
    Action, Agent, AgentRequest, AgentResponse, Checkpoint, Error, ErrorKind, Interrupt, Message,
    ModelRequest, ModelResponse, Part, Recovery, Request, Resolution, Role, RunStream, Tool,
};
use tower_agent_test::{ScriptedModel, Turn};

fn echo() -> Tool {
    Tool::function("echo", "Echoes.", |value: Value| value)
}

fn request() -> AgentRequest {
    AgentRequest::new("?").with_run_id("r")
}

fn ids(messages: &Messages) -> Vec<String> {
    let ids = messages
        .iter()
        .map(|message| message.id().unwrap().to_string());
    ids.collect()
}

async fn streamed(agent: &Agent, request: AgentRequest) -> (Vec<Event>, AgentResponse) {
    let mut run = RunStream::new(agent.clone(), request);
    let events: Vec<_> = run.by_ref().collect().await;
    (events, run.response().await.unwrap())
}

/// Returns the ids of the messages that a consumer ends up with, in order.
fn shown(events: &[Event]) -> Vec<String> {
    let mut shown: Vec<String> = Vec::new();
    for event in events {
        let message = match &event.kind {
            EventKind::TextStart { message } | EventKind::ReasoningStart { message, .. } => {
                Some(message)
            }
            EventKind::ToolCallStart(call) => Some(&call.message),
            EventKind::ToolResult(result) => Some(&result.message),
            _ => None,
        };
        if let Some(message) = message
            && !shown.iter().any(|known| **known == **message)
        {
            shown.push(message.to_string());
        }
        match &event.kind {
            EventKind::AttemptDiscarded { message, .. }
            | EventKind::ResponseReplaced { message } => {
                shown.retain(|known| **known != **message);
            }
            _ => {}
        }
    }
    shown
}

#[tokio::test]
async fn a_run_gives_each_message_an_id_which_the_checkpoint_keeps() {
    let turns = || {
        let calls = Turn::tool("echo", json!(1)).and_tool("echo", json!(2));
        ScriptedModel::new([calls, Turn::from_text("Done.")])
    };
    let expected = ["r-m0", "r-m1", "r-m1-t0-result", "r-m1-t1-result", "r-m2"];
    let agent = || Agent::builder(turns()).tool(echo()).build().unwrap();

    let response = agent().run(request()).await.unwrap();
    assert_eq!(ids(response.messages()), expected);
    let saved = serde_json::to_string(&response.checkpoint()).unwrap();
    let checkpoint: Checkpoint = serde_json::from_str(&saved).unwrap();
    assert_eq!(ids(&checkpoint.messages), expected);

    let (events, response) = streamed(&agent(), request()).await;
    assert_eq!(ids(response.messages()), expected);
    assert_eq!(shown(&events), expected[1..]);
}

#[tokio::test]
async fn an_id_of_the_caller_stays_and_is_not_used_again() {
    let agent = Agent::builder(ScriptedModel::new([
        Turn::from_text("one"),
        Turn::from_text("two"),
    ]))
    .build()
    .unwrap();
    let hello = Message::user("Hello.").with_id("client-7");
    let first = AgentRequest::conversation([hello]).with_run_id("r");
    let first = agent.run(first).await.unwrap();
    assert_eq!(ids(first.messages()), ["client-7", "r-m1"]);
    // The same run id again, as one that is resumed has it.
    let second = AgentRequest::resume(first.checkpoint()).with_run_id("r");
    let second = second.with_message(Message::user("And?").with_id("client-8"));
    let second = agent.run(second).await.unwrap();
    assert_eq!(
        ids(second.messages()),
        ["client-7", "r-m1", "client-8", "r-m2"]
    );
}

#[test]
fn ids_are_no_part_of_equality_and_read_from_json_the_same() {
    let message = Message::user("Hello.");
    assert_eq!(message.clone().with_id("a"), message.clone().with_id("b"));
    let json = serde_json::to_value(message.clone().with_id("a")).unwrap();
    assert_eq!(json["id"], "a");
    let read: Message = serde_json::from_value(json).unwrap();
    assert_eq!(read.id(), Some(&MessageId::from("a")));
    assert!(serde_json::to_value(message).unwrap().get("id").is_none());
}

#[tokio::test]
async fn messages_that_a_consumer_builds_have_the_ids_of_the_transcript() {
    let broken = || {
        let error = Error::new(ErrorKind::Overloaded, "busy");
        ScriptedModel::new([
            Turn::from_text("one half").failing_after(1, error),
            Turn::from_text("whole"),
        ])
    };
    let text = || ScriptedModel::always(Turn::from_text("said"));
    let retried = Agent::builder(broken()).on_model(on_model_error(|_, _| Recovery::Retry));
    let replaced = Agent::builder(text()).on_model(after_model(|_, _| {
        Action::Respond(ModelResponse::from_text("other"))
    }));
    let edited = Agent::builder(text()).on_model(after_model(|_, response: &ModelResponse| {
        let mut response = response.clone();
        response
            .message_mut()
            .parts_mut()
            .push(Part::from_text("!"));
        Action::Respond(response)
    }));
    let ended = Agent::builder(text()).on_agent(after_agent(|_, _| {
        Action::Respond(AgentResponse::new([Message::assistant("last")]))
    }));
    for (name, agent, last) in [
        ("retried", retried, "whole"),
        ("replaced", replaced, "other"),
        ("edited", edited, "said!"),
        ("ended", ended, "last"),
    ] {
        let (events, response) = streamed(&agent.build().unwrap(), request()).await;
        assert_eq!(response.text(), last, "{name}");
        assert_eq!(shown(&events), ids(response.messages())[1..], "{name}");
    }
}

#[tokio::test]
async fn an_agent_that_is_called_again_gives_no_id_twice() {
    let error = || Error::new(ErrorKind::Overloaded, "busy");
    let model = ScriptedModel::new([
        Turn::tool("echo", json!(1)),
        Turn::error(error()),
        Turn::from_text("Done."),
    ]);
    let agent = Agent::builder(model).tool(echo()).build().unwrap();
    let again = tower::service_fn(move |request: AgentRequest| {
        let agent = agent.clone();
        async move {
            match agent.run(request.clone()).await {
                Err(_) => agent.run(request).await,
                done => done,
            }
        }
    });
    let response = again.oneshot(request()).await.unwrap();
    let ids = ids(response.messages());
    assert_eq!(ids[..3], ["r-m0", "r-m1", "r-m1-t0-result"]);
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 4, "{ids:?}");
}

#[tokio::test]
async fn messages_of_agents_at_work_at_once_have_ids_of_their_own() {
    let member = |name: &str| {
        let model = ScriptedModel::always(Turn::from_text("mine"));
        Agent::builder(model).name(name).build().unwrap()
    };
    let tool = |name: &str| member(name).into_tool("Helps.");
    let ask = json!({ "request": "?" });
    let turn = Turn::tool("a", ask.clone())
        .and_tool("b", ask.clone())
        .and_tool("a", ask);
    let boss = ScriptedModel::new([turn, Turn::from_text("Done.")]);
    let boss = Agent::builder(boss).tool(tool("a")).tool(tool("b"));
    let team = Agent::parallel("team").agents([member("c"), member("d"), member("e")]);
    for agent in [boss.build().unwrap(), team.build().unwrap()] {
        let (events, _) = streamed(&agent, request()).await;
        let starts = events.iter().filter_map(|event| match &event.kind {
            EventKind::TextStart { message } => Some(message.clone()),
            _ => None,
        });
        let starts: Vec<_> = starts.collect();
        let distinct: HashSet<_> = starts.iter().collect();
        assert_eq!((starts.len(), distinct.len()), (starts.len(), starts.len()));
        assert!(starts.len() >= 3, "{starts:?}");
    }
}

#[tokio::test]
async fn a_response_that_is_returned_twice_is_two_messages() {
    let given = Message::assistant("the same").with_id("kept-by-a-cache");
    let cache = tower::service_fn(move |_: ModelRequest| {
        let response = ModelResponse::new(given.clone());
        async move { Ok::<_, Error>(response) }
    });
    let agent = Agent::builder(cache).build().unwrap();
    let first = agent.run(request()).await.unwrap();
    let second = AgentRequest::resume(first.checkpoint()).with_message("Again?");
    let second = agent.run(second).await.unwrap();
    let ids = ids(second.messages());
    assert_eq!(ids[1], "kept-by-a-cache");
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 4, "{ids:?}");
}

#[tokio::test]
async fn a_call_keeps_its_path_and_its_id_through_a_pause() {
    let ask = Tool::function_with(
        "ask",
        "Asks.",
        |_: Value, call: tower_agent::ToolRequest| {
            let path = call.context().call_path();
            call.ask(Interrupt::new(path, "confirmation"))
                .map(|_| "yes")
        },
    );
    let model = ScriptedModel::new([Turn::tool("ask", json!(1)), Turn::from_text("Done.")]);
    let agent = Agent::builder(model).tool(ask).build().unwrap();
    let paused = agent.run(request()).await.unwrap();
    let [interrupt] = paused.interrupts() else {
        panic!("one question")
    };
    assert_eq!(interrupt.name, "agent/m1.0");
    assert_eq!(interrupt.call_in_stream.as_deref(), Some("r-m1-t0"));

    let saved = serde_json::to_string(&paused.checkpoint()).unwrap();
    let checkpoint: Checkpoint = serde_json::from_str(&saved).unwrap();
    let yes = Resolution::resolved(&interrupt.id, true);
    let request = AgentRequest::resume(checkpoint)
        .with_resolutions([yes])
        .with_run_id("r2");
    let (events, done) = streamed(&agent, request).await;
    assert_eq!(
        ids(done.messages()),
        ["r-m0", "r-m1", "r-m1-t0-result", "r2-m2"]
    );
    let result = events.iter().find_map(|event| match &event.kind {
        EventKind::ToolResult(result) => Some((result.id.to_string(), result.message.to_string())),
        _ => None,
    });
    let expected = ("r-m1-t0".to_owned(), "r-m1-t0-result".to_owned());
    assert_eq!(result, Some(expected));
    assert!(
        done.messages()
            .iter()
            .any(|message| message.role() == Role::Tool)
    );
}
