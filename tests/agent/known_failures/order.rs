//! What one callback does and another sees; interrupted runs.

use serde_json::json;
use tower::limit::ConcurrencyLimitLayer;
use tower_agent::callback::{before_model, before_tool};
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::{Action, Agent, AgentRequest, Resolution, ToolRequest, ToolResponse};
use tower_agent_middleware::approval::{Approval, Decision};

use crate::known_failures::read;
use test_support::log::Log;

#[tokio::test]
async fn an_edited_call_passes_the_checks_behind_the_approval() {
    let log = Log::default();
    let model = ScriptedModel::new([Turn::tool("pay", json!(10)), Turn::from_text("Too much.")]);
    let agent = Agent::builder(model)
        .tool(log.tool("pay"))
        .on_tool(Approval::of_tools(["pay"]).allow_edits())
        .on_tool(before_tool(|request| {
            match request.arguments().as_u64() > Some(100) {
                true => Action::Respond(ToolResponse::error("too much")),
                false => Action::Continue,
            }
        }))
        .build()
        .unwrap();
    let paused = agent.run("?").await.unwrap();
    let answer = Resolution::resolved(&paused.interrupts()[0].id, Decision::Edit(json!(1_000_000)));
    let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([answer]);

    let response = agent.run(request).await.unwrap();

    assert_eq!(response.text(), "Too much.");
    assert!(log.all().is_empty(), "{log:?}");
}

#[tokio::test]
async fn callbacks_that_rewrite_one_request_each_see_what_the_one_before_has_made() {
    let log = Log::default();
    let append = |what: &'static str| {
        before_tool(move |request: &mut ToolRequest| {
            let so_far = request.arguments().as_str().unwrap_or_default().to_owned();
            *request.arguments_mut() = json!(so_far + what);
        })
    };
    let agent = Agent::builder(ScriptedModel::new([
        Turn::tool("look", json!("a")),
        Turn::from_text("done"),
    ]))
    .tool(log.tool("look"))
    .on_tool(append("b"))
    .on_tool(append("c"))
    .tool_layer(ConcurrencyLimitLayer::new(1))
    .on_tool(append("d"))
    .build()
    .unwrap();

    agent.run("?").await.unwrap();

    // The tool gets what they made, and not what the model gave.
    assert_eq!(log.all(), [r#"look "abcd""#]);
}

#[tokio::test]
async fn what_a_callback_adds_is_in_every_model_call_of_the_loop() {
    let model = ScriptedModel::new([
        Turn::tool("look", json!(1)),
        Turn::tool("look", json!(2)),
        Turn::from_text("done"),
    ]);
    let agent = Agent::builder(model.clone())
        .tool(Log::default().tool("look"))
        .on_model(before_model(|request| {
            request.add_instructions("Be brief.")
        }))
        .build()
        .unwrap();

    read(&agent).await.1.unwrap();

    let told: Vec<_> = model
        .requests()
        .iter()
        .map(|request| request.instructions().map(String::from))
        .collect();
    assert_eq!(told, vec![Some("Be brief.".to_owned()); 3]);
}

#[tokio::test]
async fn a_resume_runs_nothing_again_that_had_finished() {
    let log = Log::default();
    let turn = Turn::tool("look", json!("dear")).and_tool("pay", json!(10));
    let model = ScriptedModel::new([turn, Turn::from_text("done")]);
    let agent = Agent::builder(model.clone())
        .tools([log.tool("look"), log.tool("pay")])
        .on_tool(Approval::of_tools(["pay"]))
        .build()
        .unwrap();
    let paused = agent.run("?").await.unwrap();
    let yes = Resolution::resolved(&paused.interrupts()[0].id, Decision::Approve);
    let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([yes]);

    assert_eq!(agent.run(request).await.unwrap().text(), "done");

    assert_eq!(log.all(), [r#"look "dear""#, "pay 10"]);
    model.assert_done();
}
