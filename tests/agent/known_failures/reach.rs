//! Which calls a callback wraps, and what it can do.

use serde_json::json;
use tower_agent::callback::after_tool;
use tower_agent::message::ToolCall;
use tower_agent::testing::{RecordLayer, ScriptedModel, Turn};
use tower_agent::{
    Action, Agent, Effect, Message, ModelRequest, ModelResponse, ToolRequest, ToolResponse,
};
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_middleware::retry::CallRetryLayer;

use crate::known_failures::{read, shown};
use test_support::log::Log;

#[tokio::test]
async fn a_global_guard_wraps_agents_used_as_tools_and_sub_agents() {
    let worker = Agent::builder(ScriptedModel::new([Turn::from_text("Ask jo@example.com.")]))
        .name("worker")
        .build()
        .unwrap();
    let clerk = Agent::builder(ScriptedModel::new([Turn::from_text("Or al@example.com.")]))
        .name("clerk")
        .build()
        .unwrap();
    let model = ScriptedModel::new([
        Turn::tool("worker", json!({ "request": "?" })),
        Turn::tool("transfer_to_agent", json!({ "agent": "clerk" })),
    ]);
    let agent = Agent::builder(model)
        .tool(worker.into_tool(""))
        .sub_agent(clerk)
        .global_callbacks(Redact::new([Detector::email()]).unwrap())
        .build()
        .unwrap();

    let (events, response) = read(&agent).await;

    let response = response.unwrap();
    assert_eq!(response.text(), "Or [email].");
    assert_eq!(shown(&events), "Ask [email].Or [email].");
    let results: Vec<_> = response
        .new_messages()
        .flat_map(Message::tool_results)
        .collect();
    assert_eq!(results[0].text(), "Ask [email].");
}

#[tokio::test]
async fn a_callback_around_a_tool_sees_its_declaration_and_can_change_its_answer() {
    let log = Log::default();
    let seen = log.clone();
    let model = ScriptedModel::new([Turn::tool("look", json!(1)), Turn::from_text("done")]);
    let agent = Agent::builder(model)
        .tool(log.tool("look").effect(Effect::Pure))
        .on_tool(after_tool(
            move |request: &ToolRequest, _: &ToolResponse| {
                seen.note(format!("{:?}", request.declaration().unwrap().effect()));
                Action::Respond(ToolResponse::new("changed"))
            },
        ))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    let results: Vec<_> = response
        .new_messages()
        .flat_map(Message::tool_results)
        .collect();
    assert_eq!(results[0].text(), "changed");
    assert_eq!(log.all()[1], "Pure");
}

#[tokio::test]
async fn what_is_redacted_for_the_model_is_put_back_for_a_tool() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::function(|request: &ModelRequest| {
            let text = request.messages().iter().next_back().unwrap().text();
            let mut response = ModelResponse::from_text("");
            let call = ToolCall::new("call", "send", json!({ "to": text }));
            *response.message_mut().parts_mut() = vec![call.into()];
            Ok(response)
        }),
        Turn::from_text("sent"),
    ]);
    let redact = Redact::new([Detector::email()]).unwrap().redact_input();
    let agent = Agent::builder(model.clone())
        .tool(log.tool("send"))
        .global_callbacks(redact.restore_when(|call| call.name() == "send"))
        .build()
        .unwrap();

    agent.run("jo@example.com").await.unwrap();

    assert!(!format!("{:?}", model.requests()).contains("jo@example.com"));
    assert_eq!(log.all(), [r#"send {"to":"jo@example.com"}"#]);
}

#[tokio::test]
async fn what_is_registered_is_what_runs_and_can_be_looked_at() {
    let record = RecordLayer::<ModelRequest>::new();
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
        .model_layer(CallRetryLayer::new())
        .model_layer(record.clone())
        .on_tool(Approval::of_effects())
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(record.requests().len(), 1);
    let told = agent.explain().to_string();
    assert!(
        told.contains("[CallRetryLayer]") && told.contains("Approval"),
        "{told}"
    );
}
