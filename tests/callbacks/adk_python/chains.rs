//! Lists of callbacks: sync and async functions, and answers that are empty.

use serde_json::json;
use tower_agent::callback::{
    Bundle, after_agent, after_agent_async, after_tool, before_agent, before_agent_async,
    before_model, before_model_async, before_tool, before_tool_async, on_model_error,
    on_model_error_async, on_tool_error, on_tool_error_async,
};
use tower_agent::{
    Action, AgentRequest, AgentResponse, Error, ErrorKind, ModelRequest, Recovery, Request,
    ToolRequest, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::{adk, agent_says, model_says, told, work};
use test_support::log::Log;

#[tokio::test]
async fn an_empty_answer_counts_as_one() {
    // The framework calls this an empty dictionary.
    let empty = || Action::Respond(ToolResponse::new(json!({})));
    let late = || Action::Respond(ToolResponse::new("not reached"));
    let before = Bundle::new()
        .on_tool(before_tool(move |_| empty()))
        .on_tool(before_tool(move |_| late()));
    let after = Bundle::new()
        .on_tool(after_tool(move |_, _| empty()))
        .on_tool(after_tool(move |_, _| late()));
    for (callbacks, runs) in [(before, 0), (after, 1)] {
        let model = ScriptedModel::new([Turn::tool("work", json!({})), Turn::from_text("done")]);
        let log = Log::default();
        let agent = adk(&model)
            .tool(work(&log))
            .callbacks(callbacks)
            .build()
            .unwrap();

        assert_eq!(told(&agent.run("?").await.unwrap()), ["{}"]);
        assert_eq!(log.take().len(), runs);
    }
}

#[tokio::test]
async fn sync_and_async_functions_stand_in_one_list() {
    let log = Log::default();
    let [a, b, c, d, e, f] = ["a", "b", "c", "d", "e", "f"].map(|name| log.line(name));
    let model = ScriptedModel::new([Turn::tool("work", json!({})), Turn::from_text("done")]);
    let agent = adk(&model)
        .tool(work(&log))
        .on_agent(before_agent(move |_| a()))
        .on_agent(before_agent_async(async |request: &mut AgentRequest| {
            tokio::task::yield_now().await;
            request.context().state().set("async", true);
        }))
        .on_model(before_model(move |_| b()))
        .on_model(before_model_async(async |request: &mut ModelRequest| {
            tokio::task::yield_now().await;
            request.add_instructions("Wait.");
        }))
        .on_tool(before_tool(move |_| c()))
        .on_tool(before_tool_async(async |request: &mut ToolRequest| {
            tokio::task::yield_now().await;
            request.arguments_mut()["later"] = json!(true);
        }))
        .on_agent(after_agent(move |_, _| {
            let d = d.clone();
            async move {
                tokio::task::yield_now().await;
                d();
            }
        }))
        .on_agent(after_agent_async(
            async |_: &AgentRequest, response: &AgentResponse| {
                tokio::task::yield_now().await;
                Action::Respond(agent_says(&response.text().to_uppercase()))
            },
        ))
        .on_model(on_model_error(move |_, _| e()))
        .on_tool(on_tool_error(move |_, _| f()))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    model.assert_done();
    assert_eq!(response.text(), "DONE");
    assert_eq!(response.state().get("async"), Some(json!(true)));
    assert_eq!(model.requests()[0].instructions(), Some("Wait."));
    assert_eq!(
        log.take(),
        ["a", "b", "c", r#"work {"later":true}"#, "b", "d"]
    );
}

#[tokio::test]
async fn async_error_callbacks_recover_as_sync_ones_do() {
    let model = ScriptedModel::new([
        Turn::tool("missing", json!({})),
        Turn::error(Error::new(ErrorKind::RateLimited, "quota")),
    ]);
    let agent = adk(&model)
        .on_model(on_model_error_async(
            async |_: &mut ModelRequest, error: &Error| {
                tokio::task::yield_now().await;
                Recovery::Fallback(model_says(&format!("instead of: {}", error.message())))
            },
        ))
        .on_tool(on_tool_error_async(
            async |request: &mut ToolRequest, _: &Error| {
                tokio::task::yield_now().await;
                Recovery::Fallback(ToolResponse::new(format!("no {} here", request.name())))
            },
        ))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(told(&response), ["no missing here"]);
    assert_eq!(response.text(), "instead of: quota");
}
