//! Calls without a result, and answers from outside of the run.

use serde_json::{Value, json};
use tower_agent::message::{Messages, ToolCall};
use tower_agent::{Agent, AgentRequest, Error, ErrorKind, Interrupt, Message, Part, Role, Tool};
use tower_agent_test::{ScriptedModel, Turn};

#[test]
fn calls_without_a_result_are_open_among_few_and_among_many() {
    for count in [4, 40] {
        let calls: Vec<_> = (0..count)
            .map(|n| ToolCall::new(format!("call_{n}"), "add", json!({})))
            .collect();
        let asks = Message::new(Role::Assistant, calls.iter().cloned().map(Part::ToolCall));
        let mut messages = Messages::from([Message::user("Sums?"), asks]);
        for call in calls.iter().step_by(2) {
            messages.answer(&call.id, 3).unwrap();
        }
        let open: Vec<_> = messages.open_calls().collect();
        assert_eq!(open, calls.iter().skip(1).step_by(2).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn an_open_call_is_answered_by_its_id() {
    let model = ScriptedModel::new([
        Turn::tool("ask_user", json!({ "question": "Which?" })).and_tool("ask_user", json!({})),
        Turn::from_text("Oslo it is."),
    ]);
    let ask = Tool::function("ask_user", "Asks the user.", |_: Value| {
        Err::<(), _>(Error::interrupt(Interrupt::new("ask", "input_required")))
    });
    let agent = Agent::builder(model.clone()).tool(ask).build().unwrap();
    let paused = agent.run("The weather?").await.unwrap();
    let open: Vec<_> = paused
        .open_calls()
        .map(|call| call.id.to_string())
        .collect();
    assert_eq!(open.len(), 2);

    let request = AgentRequest::resume(paused.checkpoint());
    let error = request.clone().with_answer("call_9", "Oslo").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.message().contains(&*open[0]), "{error}");
    let request = request.with_answer(&open[0], "Oslo").unwrap();
    assert!(
        request.clone().with_answer(&open[0], "Rome").is_err(),
        "it is answered"
    );
    let request = request
        .with_answer(&open[1], json!({ "city": "Oslo" }))
        .unwrap();
    assert_eq!(request.messages().open_calls().count(), 0);

    let response = agent.run(request).await.unwrap();
    assert_eq!(response.text(), "Oslo it is.");
    let told: Vec<_> = model.requests()[1]
        .messages()
        .range(2)
        .map(|m| m.tool_results().map(|r| r.text()).collect::<String>())
        .collect();
    assert_eq!(told, ["Oslo", r#"{"city":"Oslo"}"#]);
}

#[test]
fn no_call_is_open_once_the_user_has_spoken() {
    let call = Part::from(ToolCall::new("call_1", "look", json!({})));
    let mut messages = Messages::from([Message::new(Role::Assistant, [call])]);
    assert_eq!(messages.open_calls().count(), 1);
    messages.push(Message::user("Never mind."));
    assert_eq!(messages.open_calls().count(), 0);
    let error = messages.answer("call_1", 1).unwrap_err();
    assert!(error.message().contains("no open calls"), "{error}");
}
