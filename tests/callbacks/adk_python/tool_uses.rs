//! Uses of the callbacks around the tool call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tower_agent::callback::{after_tool, before_tool};
use tower_agent::{
    Action, AgentRequest, Callback, EndReason, Error, Interrupt, Request, Result, State, Tool,
    ToolRequest, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::{adk, told, work};
use test_support::log::Log;

fn asks(arguments: impl IntoIterator<Item = Value>) -> ScriptedModel {
    let calls = arguments
        .into_iter()
        .map(|arguments| Turn::tool("work", arguments));
    ScriptedModel::new(calls.chain([Turn::from_text("done")]))
}

#[tokio::test]
async fn a_tool_is_authorised_by_the_sessions_state() {
    for (role, answer, runs) in [
        (json!("admin"), r#"{"from":"tool"}"#, 1),
        (json!("guest"), "guest may not use work", 0),
    ] {
        let log = Log::default();
        let agent = adk(&asks([json!({})]))
            .tool(work(&log))
            .on_tool(before_tool(|request| {
                match request
                    .context()
                    .state()
                    .get("role")
                    .as_ref()
                    .and_then(Value::as_str)
                {
                    Some("admin") => Action::Continue,
                    other => Action::Respond(ToolResponse::error(format!(
                        "{} may not use {}",
                        other.unwrap_or("nobody"),
                        request.name()
                    ))),
                }
            }))
            .build()
            .unwrap();
        let state = State::from_iter([("role".to_owned(), role)]);

        let response = agent
            .run(AgentRequest::new("?").with_state(state))
            .await
            .unwrap();

        assert_eq!(told(&response), [answer]);
        assert_eq!(log.take().len(), runs);
        assert_eq!(response.text(), "done");
    }
}

/// Answers a tool call that was answered before.
#[derive(Clone, Default)]
struct Cache(Arc<Mutex<HashMap<String, ToolResponse>>>);

impl Cache {
    fn key(request: &ToolRequest) -> String {
        format!("{} {}", request.name(), request.arguments())
    }
}

impl Callback<ToolRequest> for Cache {
    async fn before(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        let known = self.0.lock().unwrap().get(&Self::key(request)).cloned();
        Ok(known.map_or(Action::Continue, Action::Respond))
    }

    async fn after(
        &self,
        request: &ToolRequest,
        response: &ToolResponse,
    ) -> Result<Action<ToolResponse>> {
        self.0
            .lock()
            .unwrap()
            .insert(Self::key(request), response.clone());
        Ok(Action::Continue)
    }
}

#[tokio::test]
async fn a_cache_runs_the_tool_once_for_the_same_arguments() {
    let log = Log::default();
    let agent = adk(&asks([
        json!({ "n": 1 }),
        json!({ "n": 2 }),
        json!({ "n": 1 }),
    ]))
    .tool(work(&log))
    .on_tool(Cache::default())
    .build()
    .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(log.take(), [r#"work {"n":1}"#, r#"work {"n":2}"#]);
    assert_eq!(told(&response), [r#"{"from":"tool"}"#; 3]);
}

#[tokio::test]
async fn attempts_are_logged_also_of_a_call_that_is_not_made() {
    let log = Log::default();
    let agent = adk(&asks([json!({}), json!({ "dry": true })]))
        .tool(work(&Log::default()))
        .on_tool(before_tool({
            let log = log.clone();
            move |request| log.note(format!("{} by {}", request.id(), request.context().agent()))
        }))
        .on_tool(before_tool(|request| {
            match request.arguments().get("dry") {
                Some(_) => Action::Respond(ToolResponse::new("dry run")),
                None => Action::Continue,
            }
        }))
        .name("clerk")
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(log.take(), ["call_1 by clerk", "call_2 by clerk"]);
}

#[tokio::test]
async fn the_model_sees_a_filtered_result() {
    let model = ScriptedModel::new([Turn::tool("customer", json!({})), Turn::from_text("done")]);
    let agent = adk(&model)
        .tool(Tool::function(
            "customer",
            "",
            |_: Value| json!({ "name": "Ada", "card": "4711" }),
        ))
        .on_tool(after_tool(|_, response| {
            let mut shown = response.clone();
            if let Some(fields) = shown.value_mut().as_object_mut() {
                fields.remove("card");
            }
            Action::Respond(shown)
        }))
        .build()
        .unwrap();

    assert_eq!(told(&agent.run("?").await.unwrap()), [r#"{"name":"Ada"}"#]);
    let shown = format!("{:?}", model.requests()[1].messages());
    assert!(!shown.contains("4711"));
}

#[tokio::test]
async fn a_part_of_the_result_is_kept_in_the_state_and_seen_by_the_next_call() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::tool("order", json!({})),
        Turn::tool("work", json!({})),
        Turn::from_text("done"),
    ]);
    let agent = adk(&model)
        .tool(Tool::function(
            "order",
            "",
            |_: Value| json!({ "id": 17, "lines": ["a", "b"] }),
        ))
        .tool(work(&log))
        .on_tool(before_tool(|request| {
            if let Some(id) = request.context().state().get("order") {
                request.arguments_mut()["order"] = id;
            }
        }))
        .on_tool(after_tool(|request, response| {
            if let Some(id) = response.value().get("id") {
                request.context().state().set("order", id.clone());
            }
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(log.take(), [r#"work {"order":17}"#]);
    assert_eq!(
        response.state().delta().set,
        *json!({ "order": 17 }).as_object().unwrap()
    );
    assert!(
        told(&response)[0].contains("lines"),
        "the model is shown the whole result"
    );
}

#[tokio::test]
async fn a_call_waits_for_a_confirmation_and_is_asked_about_again_when_the_run_resumes() {
    for (confirmed, answer, runs) in [
        (true, r#"{"from":"tool"}"#, 1),
        (false, "the call was rejected", 0),
    ] {
        let log = Log::default();
        let agent = adk(&asks([json!({})]))
            .tool(work(&log))
            .on_tool(before_tool(|request| {
                match request
                    .context()
                    .state()
                    .get(request.id())
                    .and_then(|v| v.as_bool())
                {
                    None => Err(Error::interrupt(Interrupt::new(
                        request.id(),
                        "confirmation",
                    ))),
                    Some(true) => Ok(Action::Continue),
                    Some(false) => Ok(Action::Respond(ToolResponse::error(
                        "the call was rejected",
                    ))),
                }
            }))
            .build()
            .unwrap();

        let paused = agent.run("?").await.unwrap();

        assert!(matches!(paused.end_reason(), EndReason::Interrupted(_)));
        assert_eq!(
            paused.interrupts()[0].tool_call_id.as_deref(),
            Some("call_1")
        );
        assert!(log.take().is_empty() && told(&paused).is_empty());

        let state = State::from_iter([(paused.interrupts()[0].name.clone(), json!(confirmed))]);
        let resumed = AgentRequest::conversation(paused.messages().clone()).with_state(state);
        let response = agent.run(resumed).await.unwrap();

        assert_eq!(told(&response), [answer]);
        assert_eq!(log.take().len(), runs);
        assert_eq!(response.text(), "done");
    }
}
