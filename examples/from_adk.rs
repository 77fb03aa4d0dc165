//! A program of Google's ADK for Python, ported: a plugin, callbacks of each kind, a tree of agents
//! and the session's state. The page "migration" of the guide has each term and its counterpart.
//!
//! `cargo run --example from_adk`

use serde_json::json;
use tower_agent::callback::{Bundle, after_tool, before_agent, before_model, before_tool};
use tower_agent::compat::Semantics;
use tower_agent::{
    Action, Agent, AgentRequest, AgentResponse, BoxError, Message, ModelResponse, Request, State,
    Tool, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let transfer = |to| Turn::tool("transfer_to_agent", json!({ "agent_name": to }));
    let order = |id| Turn::tool("order", json!({ "value": id }));
    // LlmAgent(name="refunds", instruction="..{visits}..", output_key="offer")
    let refunds = Agent::builder(ScriptedModel::new([
        order("A1"),
        Turn::from_text("You get 20 back."),
        transfer("desk"),
    ]))
    .name("refunds")
    .description("Knows every refund.")
    .instructions("Visit {visits} of {user:name?}. Be generous.")
    .output_key("offer")
    .tool(Tool::function("order", "Finds an order.", |id: String| {
        format!("{id}: 20, paid with 4111")
    }))
    // before_tool_callback returns a dict; after_tool_callback changes the result.
    .on_tool(before_tool(|request| {
        if request.arguments()["value"] == "A0" {
            return Action::Respond(ToolResponse::new(json!({ "blocked": true })));
        }
        Action::Continue
    }))
    .on_tool(after_tool(|_, response| match response.value().as_str() {
        Some(text) => Action::Respond(ToolResponse::new(text.replace("4111", "****"))),
        None => Action::Continue,
    }))
    .build()?;

    let desk = Agent::builder(ScriptedModel::new([
        transfer("refunds"),
        Turn::from_text("We open at nine."),
    ]))
    .name("desk")
    .semantics(Semantics::adk_python())
    // App(plugins=[..])
    .global_callbacks(Bundle::new().on_model(before_model(|request| {
        println!("{} is asked", request.context().agent());
    })))
    // before_agent_callback: closed, or one more visit.
    .on_agent(before_agent(|request| {
        let state = request.context().state();
        if state.get("closed").is_some() {
            return Action::Respond(AgentResponse::new([Message::assistant("We are closed.")]));
        }
        let visits = state.get("visits").and_then(|visits| visits.as_u64());
        state.set("visits", visits.unwrap_or(0) + 1);
        Action::Continue
    }))
    // before_model_callback
    .on_model(before_model(|request| {
        let said = request.messages().last().map(Message::text);
        match said.as_deref() {
            Some("/ping") => Action::Respond(ModelResponse::from_text("pong")),
            _ => Action::Continue,
        }
    }))
    .sub_agent(refunds)
    .build()?;

    let state = State::from_iter([("user:name".to_owned(), json!("Ada"))]);
    let turn = async |before: Option<AgentResponse>, text: &str| {
        let request = match before {
            Some(before) => AgentRequest::resume(before.checkpoint()).with_message(text),
            None => AgentRequest::new(text),
        };
        let response = desk.run(request.with_state(state.clone())).await?;
        println!("{text} {}", response.text());
        Ok::<_, BoxError>(response)
    };
    let first = turn(None, "My money back!").await?;
    // The sub-agent has the conversation, until it hands it back.
    assert_eq!(
        first.message().and_then(Message::author),
        Some("desk/refunds")
    );
    let second = turn(Some(first), "When are you open?").await?;
    assert_eq!(second.message().and_then(Message::author), Some("desk"));
    let third = turn(Some(second), "/ping").await?;
    assert_eq!(third.text(), "pong");
    state.set("closed", true);
    turn(Some(third), "Hello?").await?;

    assert_eq!(state.get("offer"), Some(json!("You get 20 back.")));
    assert_eq!(state.get("visits"), Some(json!(3)));
    Ok(())
}
