//! Callbacks of the tool call: what an answer means, what the tool is given, what fails.

use std::io;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tower_agent::callback::{after_tool, before_tool, on_tool_error};
use tower_agent::context::Values;
use tower_agent::tool::InvalidArguments;
use tower_agent::{
    Action, AgentRequest, ErrorKind, Recovery, State, Tool, ToolRequest, ToolResponse,
};
use tower_agent_test::{RecordLayer, ScriptedModel, Turn};

use super::{adk, told, work};
use test_support::log::Log;

/// A model that asks for one tool once, and is then done.
fn asks(tool: &str, arguments: Value) -> ScriptedModel {
    ScriptedModel::new([Turn::tool(tool, arguments), Turn::from_text("done")])
}

/// A tool that fails.
fn broken() -> Tool {
    Tool::function("broken", "", |_: Value| {
        Err::<(), _>(io::Error::other("out of paper"))
    })
}

#[tokio::test]
async fn changed_arguments_reach_the_tool_and_after_tool_but_not_the_recorded_call() {
    let log = Log::default();
    let model = asks("work", json!({ "city": "Rome" }));
    let agent = adk(&model)
        .tool(work(&log))
        .on_tool(before_tool(|request| {
            request.arguments_mut()["city"] = json!("Oslo")
        }))
        .on_tool(before_tool(|request| {
            let shout = request.arguments()["city"]
                .as_str()
                .unwrap_or_default()
                .to_uppercase();
            request.arguments_mut()["city"] = json!(shout);
        }))
        .on_tool(after_tool({
            let log = log.clone();
            move |request, _| log.note(format!("after {}", request.arguments()))
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(
        log.take(),
        [r#"work {"city":"OSLO"}"#, r#"after {"city":"OSLO"}"#]
    );
    let recorded = |messages: &tower_agent::message::Messages| {
        let mut calls = messages.iter().flat_map(|message| message.tool_calls());
        calls.next().unwrap().arguments.value().clone()
    };
    assert_eq!(recorded(response.messages()), json!({ "city": "Rome" }));
    assert_eq!(
        recorded(model.requests()[1].messages()),
        json!({ "city": "Rome" })
    );
}

#[tokio::test]
async fn after_tool_sees_the_value_itself_whatever_its_type() {
    for value in [json!("text"), json!(null), json!(21.5), json!([1, 2])] {
        let record = RecordLayer::<ToolRequest>::new();
        let log = Log::default();
        let answer = value.clone();
        let agent = adk(&asks("raw", json!({})))
            .tool(Tool::function("raw", "", move |_: Value| answer.clone()))
            .on_tool(after_tool({
                let log = log.clone();
                move |_, response| log.note(response.value().to_string())
            }))
            .tool_layer(record.clone())
            .build()
            .unwrap();

        agent.run("?").await.unwrap();

        assert_eq!(log.take(), [value.to_string()]);
        assert_eq!(record.responses()[0].value(), &value);
    }
}

#[tokio::test]
async fn a_tool_that_fails_fails_the_run_with_its_own_error() {
    let log = Log::default();
    let asked = log.line("on_tool_error");
    let model = asks("broken", json!({}));
    let agent = adk(&model)
        .tool(broken())
        .on_tool(on_tool_error(move |_, _| asked()))
        .build()
        .unwrap();

    let error = agent.run("?").await.unwrap_err();

    assert_eq!(error.message(), "out of paper");
    assert!(error.downcast_ref::<io::Error>().is_some());
    assert_eq!(log.take(), ["on_tool_error"]);
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a_response_for_a_failed_tool_passes_after_tool_and_the_model_continues() {
    let model = asks("broken", json!({ "page": 7 }));
    let agent = adk(&model)
        .tool(broken())
        .on_tool(on_tool_error(|request, error| {
            let (page, message) = (
                request.arguments()["page"].clone(),
                error.message().to_owned(),
            );
            async move { Recovery::Fallback(ToolResponse::new(format!("{page}: {message}"))) }
        }))
        .on_tool(after_tool(|_, response| {
            let text = response.value().as_str().unwrap_or_default();
            Action::Respond(ToolResponse::new(format!("[{text}]")))
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(told(&response), ["[7: out of paper]"]);
    assert_eq!(response.text(), "done");
    model.assert_done();
}

#[tokio::test]
async fn the_model_reads_the_error_of_an_unknown_tool_and_the_run_continues() {
    let log = Log::default();
    let model = asks("wrok", json!({}));
    let agent = adk(&model)
        .tool(work(&log))
        .on_tool(before_tool({
            let log = log.clone();
            move |request| log.note(format!("before {}", request.declaration().is_some()))
        }))
        .on_tool(on_tool_error({
            let log = log.clone();
            move |_, error| log.note(format!("on_error {:?}", error.kind()))
        }))
        .on_tool(after_tool({
            let after = log.line("after");
            move |_, _| after()
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    let results: Vec<_> = response
        .messages()
        .iter()
        .flat_map(|message| message.tool_results())
        .collect();
    assert!(results[0].is_error);
    let text = results[0].text();
    assert!(text.contains("`wrok`") && text.contains("work"), "{text}");
    assert_eq!(response.text(), "done");
    assert_eq!(log.take(), ["before false", "on_error UnknownTool"]);
}

#[tokio::test]
async fn before_tool_and_on_tool_error_may_answer_for_an_unknown_tool() {
    for hook in ["before", "on_error"] {
        let log = Log::default();
        let after = log.line("after");
        let agent = adk(&asks("wrok", json!({})))
            .on_tool(before_tool(move |request| match request.declaration() {
                None if hook == "before" => Action::Respond(ToolResponse::new("before")),
                _ => Action::Continue,
            }))
            .on_tool(on_tool_error(|_, error| match error.kind() {
                ErrorKind::UnknownTool => Recovery::Fallback(ToolResponse::new("on_error")),
                _ => Recovery::Propagate,
            }))
            .on_tool(after_tool(move |_, _| after()))
            .build()
            .unwrap();

        assert_eq!(told(&agent.run("?").await.unwrap()), [hook]);
        assert_eq!(log.take(), ["after"]);
    }
}

#[tokio::test]
async fn a_failing_callback_fails_the_run_past_on_tool_error() {
    for hook in ["before", "after"] {
        let log = Log::default();
        let asked = log.line("on_error");
        let fails = move |here: &str| {
            if here == hook {
                Err("my own bug".into())
            } else {
                Ok(())
            }
        };
        let agent = adk(&asks("work", json!({})))
            .tool(work(&Log::default()))
            .on_tool(before_tool(move |_| fails("before")))
            .on_tool(after_tool(move |_, _| fails("after")))
            .on_tool(on_tool_error(move |_, _| asked()))
            .build()
            .unwrap();

        let error = agent.run("?").await.unwrap_err();

        assert_eq!(error.message(), "my own bug");
        assert_eq!(error.raised_by().unwrap().hook, hook);
        assert!(log.take().is_empty(), "{hook}");
    }
}

#[tokio::test]
async fn a_failing_on_tool_error_fails_the_run_with_its_own_error() {
    let agent = adk(&asks("broken", json!({})))
        .tool(broken())
        .on_tool(on_tool_error(|_, _| Err::<(), _>("gave up".into())))
        .on_tool(on_tool_error(|_, _| {
            Recovery::Fallback(ToolResponse::new("hidden"))
        }))
        .build()
        .unwrap();

    let error = agent.run("?").await.unwrap_err();

    assert_eq!(error.message(), "gave up");
    assert_eq!(error.raised_by().unwrap().hook, "on_error");
}

#[derive(Deserialize, JsonSchema)]
struct Report {
    city: String,
}

#[tokio::test]
async fn the_model_reads_the_error_of_invalid_arguments_and_the_run_continues() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::tool("report", json!({})),
        Turn::tool("report", json!({ "city": "Oslo" })),
        Turn::from_text("done"),
    ]);
    let agent = adk(&model)
        .tool(Tool::function("report", "", |Report { city }| {
            format!("rain in {city}")
        }))
        .on_tool(on_tool_error({
            let log = log.clone();
            move |_, error| {
                log.note(
                    error
                        .downcast_ref::<InvalidArguments>()
                        .unwrap()
                        .field
                        .clone(),
                )
            }
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    let [first, second] = &told(&response)[..] else {
        panic!("{response:?}")
    };
    assert!(first.contains("city"), "{first}");
    assert_eq!(second, "rain in Oslo");
    assert_eq!(log.take(), ["city"]);
    model.assert_done();
}

#[tokio::test]
async fn a_turn_may_end_with_what_the_tool_said() {
    let log = Log::default();
    let after = log.line("after_agent");
    let model = ScriptedModel::new([Turn::tool("work", json!({}))]);
    let agent = adk(&model)
        .tool(work(&Log::default()))
        .on_tool(after_tool(|request, _| {
            values(request).set("skip summary", true);
        }))
        .stop_when(|turn| {
            turn.context()
                .values()
                .get::<bool>("skip summary")
                .is_ok_and(|v| v.is_some())
        })
        .on_agent(tower_agent::callback::after_agent(move |_, _| after()))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    model.assert_done();
    assert_eq!(told(&response), [r#"{"from":"tool"}"#]);
    assert_eq!(
        response.end_reason(),
        &tower_agent::EndReason::StopCondition
    );
    assert_eq!(log.take(), ["after_agent"]);
}

fn values(request: &ToolRequest) -> &Values {
    tower_agent::Request::context(request).values()
}

#[tokio::test]
async fn state_written_by_a_failing_tool_stays() {
    let state = State::default();
    let agent = adk(&asks("broken", json!({})))
        .tool(Tool::function_with(
            "broken",
            "",
            |_: Value, request: ToolRequest| {
                tower_agent::Request::context(&request)
                    .state()
                    .set("tried", true);
                Err::<(), _>("out of paper")
            },
        ))
        .build()
        .unwrap();

    agent
        .run(AgentRequest::new("?").with_state(state.clone()))
        .await
        .unwrap_err();

    assert_eq!(state.get("tried"), Some(json!(true)));
}
