//! `loop_guard`

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tower_agent::message::ToolCall;
use tower_agent::model::ToolChoice;
use tower_agent::{
    Agent, AgentBuilder, AgentRequest, ErrorKind, Message, ModelRequest, ModelResponse, Role, Tool,
};
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::loop_guard::LoopGuard;
use tower_agent_test::{ScriptedModel, Turn};

use super::{ids, saved};

/// An agent with tools that answer always the same, that count, and that fail.
fn agent(model: ScriptedModel) -> AgentBuilder {
    let count = AtomicUsize::new(0);
    Agent::builder(model)
        .tool(Tool::function("find", "Finds.", |_: Value| "nothing"))
        .tool(Tool::function("count", "Counts.", move |_: Value| {
            count.fetch_add(1, Ordering::Relaxed)
        }))
        .max_iterations(100)
}

fn find(arguments: Value) -> Turn {
    Turn::tool("find", arguments)
}

/// Returns the guard's words in a request.
fn nudge(request: &ModelRequest) -> Option<String> {
    let last = request.messages().last()?;
    (last.role() == Role::User && last.text().starts_with("You have called")).then(|| last.text())
}

fn forbids_tools(request: &ModelRequest) -> bool {
    request.settings().tool_choice == Some(ToolChoice::None)
}

#[tokio::test]
async fn a_call_that_is_repeated_is_nudged_then_forbidden_then_ended() {
    let model = ScriptedModel::new((0..8).map(|_| find(json!({ "value": 1 }))));
    let agent = agent(model.clone())
        .on_model(LoopGuard::new())
        .build()
        .unwrap();

    let error = agent.run("Go.").await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Denied);
    let requests = model.requests();
    let nudged: Vec<_> = requests
        .iter()
        .map(|request| nudge(request).is_some())
        .collect();
    let forbidden: Vec<_> = requests.iter().map(forbids_tools).collect();
    assert_eq!(
        nudged,
        [false, false, false, true, true, true, true, true],
        "after three calls"
    );
    assert_eq!(
        forbidden,
        [false, false, false, false, false, true, true, true],
        "after five calls"
    );
    assert_eq!(
        nudge(&requests[3]).unwrap(),
        "You have called `find` 3 times with the same arguments and got the same result. Do something \
         else, or answer with what you know."
    );
}

#[tokio::test]
async fn the_words_of_the_guard_are_in_no_transcript() {
    let calls = (0..4).map(|_| find(json!(1)));
    let model = ScriptedModel::new(calls.chain([Turn::from_text("Nothing.")]));
    let agent = agent(model).on_model(LoopGuard::new()).build().unwrap();

    let response = agent.run("Go.").await.unwrap();

    assert_eq!(response.text(), "Nothing.");
    let users = response
        .messages()
        .iter()
        .filter(|message| message.role() == Role::User);
    assert_eq!(users.count(), 1);
}

#[tokio::test]
async fn a_tool_that_does_not_exist_counts_as_well() {
    let model = ScriptedModel::new((0..8).map(|_| Turn::tool("serach", json!({}))));
    let agent = agent(model.clone())
        .on_model(LoopGuard::new())
        .build()
        .unwrap();
    let error = agent.run("Go.").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    model.assert_done();
}

#[tokio::test]
async fn arguments_are_compared_by_value() {
    let texts = [
        r#"{"a":1,"b":[2]}"#,
        r#"{ "b": [2], "a": 1 }"#,
        "{\n\"a\":1,\n\"b\":[2]}",
    ];
    let calls = texts.map(|text| {
        let call = ToolCall::from_text("1", "find", text);
        Turn::response(ModelResponse::from_tool_calls([call]))
    });
    let model = ScriptedModel::new(calls.into_iter().chain([Turn::from_text("Nothing.")]));
    let agent = agent(model.clone())
        .on_model(LoopGuard::new())
        .build()
        .unwrap();
    agent.run("Go.").await.unwrap();
    assert!(nudge(&model.requests()[3]).is_some());
}

#[tokio::test]
async fn polling_is_no_loop_while_the_result_changes() {
    let calls = (0..20).map(|_| Turn::tool("count", json!(1)));
    let model = ScriptedModel::new(calls.chain([Turn::from_text("Done.")]));
    let agent = agent(model.clone())
        .on_model(LoopGuard::new())
        .build()
        .unwrap();
    agent.run("Wait for it.").await.unwrap();
    assert!(
        model
            .requests()
            .iter()
            .all(|request| nudge(request).is_none())
    );
}

#[tokio::test]
async fn a_tool_that_is_excepted_may_be_repeated() {
    let calls = (0..20).map(|_| find(json!(1)).and_tool("find", json!(1)));
    let model = ScriptedModel::new(calls.chain([Turn::from_text("Done.")]));
    let agent = agent(model.clone())
        .on_model(LoopGuard::new().except(["find"]))
        .build()
        .unwrap();
    agent.run("Wait for it.").await.unwrap();
    assert!(
        model
            .requests()
            .iter()
            .all(|request| nudge(request).is_none())
    );
}

#[tokio::test]
async fn other_arguments_are_another_call() {
    let calls = (0..20).map(|number| find(json!(number)));
    let model = ScriptedModel::new(calls.chain([Turn::from_text("Done.")]));
    let agent = agent(model.clone())
        .on_model(LoopGuard::new())
        .build()
        .unwrap();
    agent.run("Look everywhere.").await.unwrap();
    assert!(
        model
            .requests()
            .iter()
            .all(|request| nudge(request).is_none())
    );
}

#[tokio::test]
async fn a_loop_of_several_calls_is_a_loop() {
    let calls = (0..6).map(|number| find(json!(number % 2)));
    let model = ScriptedModel::new(calls.chain([Turn::from_text("Done.")]));
    let agent = agent(model.clone())
        .on_model(LoopGuard::new())
        .build()
        .unwrap();
    agent.run("Go.").await.unwrap();
    let nudged = model.requests().iter().filter_map(nudge).count();
    assert_eq!(nudged, 2, "after the third of each");
}

#[tokio::test]
async fn calls_side_by_side_count_each() {
    let three = find(json!(1))
        .and_tool("find", json!(1))
        .and_tool("find", json!(1));
    let model = ScriptedModel::new([three, Turn::from_text("Done.")]);
    let agent = agent(model.clone())
        .on_model(LoopGuard::new())
        .build()
        .unwrap();
    agent.run("Go.").await.unwrap();
    assert!(nudge(&model.requests()[1]).is_some());
}

#[tokio::test]
async fn the_next_message_of_the_user_starts_the_count_again() {
    let calls = || {
        (0..2)
            .map(|_| find(json!(1)))
            .chain([Turn::from_text("Nothing.")])
    };
    let model = ScriptedModel::new(calls().chain(calls()));
    let agent = agent(model.clone())
        .on_model(LoopGuard::new())
        .build()
        .unwrap();
    let first = agent.run("Go.").await.unwrap();
    let mut messages = first.messages().clone();
    messages.push(Message::user("Again."));
    agent
        .run(AgentRequest::conversation(messages))
        .await
        .unwrap();
    assert!(
        model
            .requests()
            .iter()
            .all(|request| nudge(request).is_none())
    );
}

#[tokio::test]
async fn the_count_goes_on_after_a_pause_in_another_process() {
    let calls = (0..3).map(|_| find(json!(1)));
    let model = ScriptedModel::new(calls.chain([Turn::from_text("Nothing.")]));
    let agent = agent(model.clone())
        .on_model(LoopGuard::new())
        .on_tool(Approval::of_tools(["find"]))
        .build()
        .unwrap();
    let mut response = agent.run("Go.").await.unwrap();
    while let [id] = &ids(&response)[..] {
        let yes = tower_agent::Resolution::resolved(id.clone(), json!({ "approved": true }));
        let request = AgentRequest::resume(saved(&response)).with_resolutions([yes]);
        response = agent.run(request).await.unwrap();
    }
    assert_eq!(response.text(), "Nothing.");
    assert!(nudge(model.requests().last().unwrap()).is_some());
}

#[tokio::test]
async fn an_agent_used_as_a_tool_is_guarded_by_a_bundle() {
    let inner = ScriptedModel::new((0..8).map(|_| find(json!(1))));
    let inner_agent = agent(inner.clone()).name("inner").build().unwrap();
    let outer = ScriptedModel::new([
        Turn::tool("inner", json!({ "request": "Go." })),
        Turn::from_text("It went round in circles."),
    ]);
    let bundle = tower_agent::callback::Bundle::new().on_model(LoopGuard::new());
    let agent = Agent::builder(outer)
        .tool(inner_agent.into_tool("Finds."))
        .global_callbacks(bundle)
        .build()
        .unwrap();
    let response = agent.run("Go.").await.unwrap();
    assert_eq!(response.text(), "It went round in circles.");
    inner.assert_done();
}
