//! `context.state()`: the session's state.

use serde_json::{Value, json};
use tower_agent::callback::{after_agent, before_agent, before_model, on_agent_error, wrap_agent};
use tower_agent::{
    Action, Agent, AgentRequest, AgentResponse, Error, Interrupt, Message, Recovery, Request,
    State, Tool, ToolRequest,
};
use tower_agent_test::{ScriptedModel, Turn};

use crate::data::calls;
use test_support::log::Log;

fn state(value: Value) -> State {
    State::from(value.as_object().unwrap().clone())
}

fn snapshot(response: &AgentResponse) -> Value {
    Value::Object(response.state().snapshot())
}

/// An agent that counts its visits in the state.
fn visits(model: ScriptedModel) -> Agent {
    Agent::builder(model)
        .on_model(before_model(|request| {
            let state = request.context().state();
            let visits = state
                .get("visits")
                .and_then(|value| value.as_u64())
                .unwrap_or_default();
            state.set("visits", visits + 1);
        }))
        .build()
        .unwrap()
}

#[tokio::test]
async fn the_state_comes_with_the_request_and_goes_back_with_the_response() {
    let agent = visits(ScriptedModel::new([Turn::from_text("hi")]));
    let before = state(json!({ "visits": 3, "theme": "dark" }));
    let response = agent
        .run(AgentRequest::new("?").with_state(before))
        .await
        .unwrap();
    assert_eq!(snapshot(&response), json!({ "visits": 4, "theme": "dark" }));
    let delta = response.state().delta();
    assert_eq!(
        Value::Object(delta.set),
        json!({ "visits": 4 }),
        "what stayed is no change"
    );
    assert!(delta.removed.is_empty());
}

#[tokio::test]
async fn a_run_that_is_given_no_state_begins_with_an_empty_one() {
    let agent = visits(ScriptedModel::new([
        Turn::from_text("hi"),
        Turn::from_text("hi"),
    ]));
    for _ in 0..2 {
        assert_eq!(
            snapshot(&agent.run("?").await.unwrap()),
            json!({ "visits": 1 })
        );
    }
}

#[test]
fn a_delta_is_the_difference_between_the_beginning_and_now() {
    let state = state(json!({ "same": 1, "changed": 1, "removed": 1, "back": 1 }));
    state.set("same", 1);
    state.set("changed", 2);
    state.set("changed", 3);
    assert_eq!(state.remove("removed"), Some(json!(1)));
    state.remove("back");
    state.set("back", 1);
    state.set("brief", 1);
    state.remove("brief");
    state.set("new", json!({ "deep": [1] }));
    assert_eq!(state.remove("never there"), None);

    let delta = state.delta();
    assert_eq!(
        Value::Object(delta.set),
        json!({ "changed": 3, "new": { "deep": [1] } })
    );
    assert_eq!(delta.removed, ["removed"]);
}

#[tokio::test]
async fn a_state_that_a_second_run_is_given_starts_a_new_delta() {
    let agent = visits(ScriptedModel::new([
        Turn::from_text("hi"),
        Turn::from_text("hi"),
    ]));
    let kept = state(json!({ "theme": "dark" }));
    let first = agent
        .run(AgentRequest::new("?").with_state(kept.clone()))
        .await
        .unwrap();
    assert_eq!(
        Value::Object(first.state().delta().set),
        json!({ "visits": 1 })
    );
    kept.set("between", true);

    let request = AgentRequest::new("?").with_state(first.state().clone());
    // Until the next run begins, the last one's changes can be read.
    assert_eq!(
        Value::Object(first.state().delta().set),
        json!({ "visits": 1, "between": true })
    );
    let second = agent.run(request).await.unwrap();
    assert_eq!(
        Value::Object(second.state().delta().set),
        json!({ "visits": 2 })
    );
    let all = json!({ "theme": "dark", "visits": 2, "between": true });
    assert_eq!(snapshot(&second), all);
    assert_eq!(
        Value::Object(kept.snapshot()),
        all,
        "the handle shows the same state"
    );
}

#[tokio::test]
async fn parallel_tools_share_the_state() {
    let barrier = std::sync::Arc::new(tokio::sync::Barrier::new(3));
    let tool = Tool::function_with("meet", "", move |n: u32, request: ToolRequest| {
        let barrier = barrier.clone();
        async move {
            request.context().state().set(request.id(), n);
            barrier.wait().await;
            request.context().state().snapshot().len()
        }
    });
    let agent = Agent::builder(ScriptedModel::new([
        calls("meet", 3),
        Turn::from_text("done"),
    ]))
    .tool(tool)
    .build()
    .unwrap();
    let response = agent.run("?").await.unwrap();
    assert_eq!(
        snapshot(&response),
        json!({ "call_1": 0, "call_2": 1, "call_3": 2 })
    );
    let results = response.new_messages().flat_map(Message::tool_results);
    assert_eq!(
        results.map(|result| result.text()).collect::<Vec<_>>(),
        ["3"; 3]
    );
}

/// Wherever the response comes from, and however the agent ends.
#[tokio::test]
async fn the_state_is_returned_wherever_the_response_comes_from() {
    fn given() -> AgentResponse {
        AgentResponse::new([Message::assistant("given")])
    }
    let down = || Turn::error(Error::from("down"));
    let script = |turns: Vec<Turn>| Agent::builder(ScriptedModel::new(turns));
    let agents = [
        ("the model", script(vec![Turn::from_text("hi")])),
        (
            "before_agent",
            script(vec![]).on_agent(before_agent(move |request| {
                request.context().state().set("seen", true);
                Action::Respond(given())
            })),
        ),
        (
            "after_agent",
            script(vec![Turn::from_text("hi")])
                .on_agent(after_agent(move |_, _| Action::Respond(given()))),
        ),
        (
            "on_agent_error",
            script(vec![down()]).on_agent(on_agent_error(move |_, _| Recovery::Fallback(given()))),
        ),
        (
            "a layer",
            script(vec![]).agent_layer(wrap_agent(async |request: AgentRequest, _| {
                request.context().state().set("seen", true);
                Ok(given())
            })),
        ),
        (
            "an end",
            script(vec![]).on_model(before_model(|_| Err::<(), _>(Error::end_invocation()))),
        ),
        (
            "an interrupt",
            script(vec![]).on_model(before_model(|_| {
                Err::<(), _>(Error::interrupt(Interrupt::new("1", "input_required")))
            })),
        ),
    ];
    for (who, agent) in agents {
        let seen = before_agent(|request| request.context().state().set("seen", true));
        let notes = Log::default();
        let shown = after_agent({
            let notes = notes.clone();
            move |_, response: &AgentResponse| notes.push(snapshot(response))
        });
        let agent = agent.on_agent(seen).on_agent(shown).build().unwrap();
        let request = AgentRequest::new("?").with_state(state(json!({ "theme": "dark" })));
        let response = agent.run(request).await.unwrap();
        let all = json!({ "theme": "dark", "seen": true });
        assert_eq!(snapshot(&response), all, "{who}");
        for shown in notes.take() {
            assert_eq!(shown, all, "{who}: what after_agent is shown");
        }
    }
}

#[test]
fn a_delta_has_what_really_changed() {
    let state = State::from_iter([
        ("same".to_owned(), json!(1)),
        ("changed".to_owned(), json!(1)),
        ("gone".to_owned(), json!(1)),
    ]);
    state.set("same", 2);
    state.set("same", 1);
    state.set("changed", 2);
    state.remove("gone");
    state.set("brief", 1);
    state.remove("brief");
    state.remove("never there");
    state.set("new", json!([1]));

    let delta = state.delta();
    assert_eq!(
        Value::Object(delta.set),
        json!({ "changed": 2, "new": [1] })
    );
    assert_eq!(delta.removed, ["gone"]);
}
