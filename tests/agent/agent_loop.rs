//! The loop: it asks the model, runs tools, sends their results, and ends.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower_agent::agent::BuildError;
use tower_agent::callback::{AtLimit, after_tool, before_model, before_tool};
use tower_agent::compat::Semantics;
use tower_agent::message::MediaSource;
use tower_agent::tool::{InvalidArguments, InvalidTool, ToolDeclaration};
use tower_agent::{
    Agent, AgentRequest, BoxError, EndReason, ErrorKind, Message, ModelRequest, ModelResponse,
    Part, Request, Role, Settings, State, Tool, ToolRequest, ToolResponse, Usage, stream,
};
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};

#[derive(Deserialize, JsonSchema)]
struct Add {
    /// The first number.
    a: f64,
    /// The second number.
    b: f64,
}

fn add() -> Tool {
    Tool::function("add", "Adds two numbers.", |Add { a, b }| a + b)
}

fn sum(a: i32, b: i32) -> Value {
    json!({ "a": a, "b": b })
}

#[tokio::test]
async fn an_answer_without_tools_ends_the_run() {
    let model = ScriptedModel::new([Turn::from_text("blue").usage(Usage::new(10, 2))]);
    let agent = Agent::builder(model.clone())
        .instructions("Be brief.")
        .build()
        .unwrap();

    let response = agent.run("Name a colour.").await.unwrap();

    model.assert_done();
    assert_eq!(response.text(), "blue");
    assert_eq!(response.end_reason(), &EndReason::Completed);
    assert_eq!(
        (response.iterations(), response.usage()),
        (1, Usage::new(10, 2))
    );
    assert_eq!(
        response.new_messages().collect::<Vec<_>>(),
        [&Message::assistant("blue")]
    );
    assert_eq!(response.messages().len(), 2);
    let request = &model.requests()[0];
    assert_eq!(request.instructions(), Some("Be brief."));
    assert_eq!(request.messages()[0], Message::user("Name a colour."));
}

#[tokio::test]
async fn the_model_reads_the_results_of_its_tools() {
    let model = ScriptedModel::new([
        Turn::tool("add", sum(1, 2)).usage(Usage::new(10, 5)),
        Turn::tool("add", sum(3, 4)).usage(Usage::new(20, 5)),
        Turn::from_text("3 and 7").usage(Usage::new(30, 5)),
    ]);
    let agent = Agent::builder(model.clone()).tool(add()).build().unwrap();

    let response = agent.run("Sums, please.").await.unwrap();

    model.assert_done();
    assert_eq!(response.text(), "3 and 7");
    assert_eq!(
        (response.iterations(), response.usage()),
        (3, Usage::new(60, 15))
    );
    let roles: Vec<_> = response.new_messages().map(Message::role).collect();
    let (asks, tells) = (Role::Assistant, Role::Tool);
    assert_eq!(roles, [asks, tells, asks, tells, asks]);
    let seen = model.requests();
    assert_eq!(
        seen.iter().map(|r| r.messages().len()).collect::<Vec<_>>(),
        [1, 3, 5]
    );
    assert_eq!(seen[0].tools()[0].description(), "Adds two numbers.");
    let result = seen[2].messages()[4].tool_results().next().unwrap();
    assert_eq!(
        (&*result.call_id, &*result.name, result.text()),
        ("call_2", "add", "7.0".into())
    );
}

#[tokio::test]
async fn a_tool_call_knows_what_it_is_part_of() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let model = ScriptedModel::new([
        Turn::tool("add", sum(1, 2)),
        Turn::tool("add", sum(1, 2)),
        Turn::from_text("3"),
    ]);
    let agent = Agent::builder(model)
        .name("sums")
        .max_iterations(7)
        .tool(add())
        .on_tool(before_tool({
            let seen = seen.clone();
            move |request| {
                let context = request.context();
                let declared = request.declaration().map(|tool| tool.name().to_owned());
                seen.lock().unwrap().push((
                    request.id().to_owned(),
                    context.tool_call_id().map(str::to_owned),
                    context.path().to_owned(),
                    (context.iteration(), context.max_iterations()),
                    declared,
                ));
            }
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let call = |id: &str, iteration| {
        (
            id.to_owned(),
            Some(id.to_owned()),
            "sums".to_owned(),
            (iteration, 7),
            Some("add".into()),
        )
    };
    assert_eq!(
        *seen.lock().unwrap(),
        [call("call_1", 0), call("call_2", 1)]
    );
}

#[tokio::test]
async fn callbacks_see_earlier_texts_and_the_iteration() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let model = ScriptedModel::new([
        Turn::response(ModelResponse::from_text("Let me add.")).and_tool("add", sum(1, 2)),
        Turn::tool("add", sum(1, 2)),
        Turn::from_text("3"),
    ]);
    let agent = Agent::builder(model)
        .tool(add())
        .on_model(before_model({
            let seen = seen.clone();
            move |request| {
                let texts = request
                    .context()
                    .texts()
                    .iter()
                    .map(|t| t.to_string())
                    .collect();
                seen.lock()
                    .unwrap()
                    .push((request.context().iteration(), texts));
            }
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let said = || vec!["Let me add.".to_owned()];
    assert_eq!(
        *seen.lock().unwrap(),
        [(0, vec![]), (1, said()), (2, said())]
    );
}

/// Tools that take 30, 20 and 10 ms.
fn slow_tools() -> Turn {
    Turn::tool("wait", json!(30))
        .and_tool("wait", json!(20))
        .and_tool("wait", json!(10))
}

fn wait() -> Tool {
    Tool::function("wait", "Waits.", async |milliseconds: u64| {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        milliseconds
    })
}

#[tokio::test(start_paused = true)]
async fn tool_calls_of_a_turn_run_together_and_answer_in_order() {
    for (limit, at_once, takes) in [(1, 1, 60), (2, 2, 30), (8, 3, 30)] {
        let model = ScriptedModel::new([slow_tools(), Turn::from_text("done")]);
        let probe = ProbeLayer::new();
        let agent = Agent::builder(model)
            .tool(wait())
            .tool_concurrency(limit)
            .tool_layer(probe.clone())
            .build()
            .unwrap();

        let start = Instant::now();
        let response = agent.run("?").await.unwrap();

        assert_eq!(
            start.elapsed(),
            Duration::from_millis(takes),
            "limit {limit}"
        );
        assert_eq!(
            (probe.max_in_flight(), probe.violations()),
            (at_once, 0),
            "limit {limit}"
        );
        let results = response.new_messages().flat_map(Message::tool_results);
        assert_eq!(
            results.map(|r| r.text()).collect::<Vec<_>>(),
            ["30", "20", "10"]
        );
    }
}

#[tokio::test]
async fn the_model_reads_what_a_tool_cannot_do() {
    let model = ScriptedModel::new([
        Turn::tool("fail", json!(null))
            .and_tool("panic", json!(null))
            .and_tool("refuse", json!(null))
            .and_tool("add", json!({ "a": "one", "b": 2 }))
            .and_tool("add", json!({ "a": 1 }))
            .and_tool("subtract", sum(1, 2)),
        Turn::from_text("sorry"),
    ]);
    let agent = Agent::builder(model)
        .tool(add())
        .tool(Tool::function("fail", "", |_: Value| {
            Err::<(), _>("disk full")
        }))
        .tool(Tool::function("panic", "", async |_: Value| -> () {
            panic!("at the disco")
        }))
        .tool(Tool::function("refuse", "", |_: Value| {
            ToolResponse::error("not on a Sunday")
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(response.text(), "sorry");
    let results: Vec<_> = response
        .new_messages()
        .flat_map(Message::tool_results)
        .collect();
    assert!(results.iter().all(|result| result.is_error));
    let texts: Vec<_> = results.iter().map(|result| result.text()).collect();
    assert_eq!(texts[0], "tool failed: disk full");
    assert_eq!(texts[1], "tool failed: the tool panicked: at the disco");
    assert_eq!(texts[2], "not on a Sunday");
    assert!(texts[3].starts_with("invalid arguments: field `a`: invalid type: string \"one\""));
    let schema = texts[3].split("; expected ").nth(1).unwrap();
    let schema: Value = serde_json::from_str(schema.lines().next().unwrap()).unwrap();
    assert_eq!(schema["description"], "The first number.");
    assert!(texts[4].starts_with("invalid arguments: field `b`: is missing; expected {"));
    assert_eq!(
        texts[5],
        "unknown tool: `subtract` is not registered; available tools: add, fail, panic, refuse"
    );
}

#[tokio::test]
async fn tool_callbacks_see_typed_errors_before_the_model_does() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let model = ScriptedModel::new([
        Turn::tool("add", json!({ "a": true, "b": 2 })).and_tool("subtract", sum(1, 2)),
        Turn::from_text("sorry"),
    ]);
    let agent = Agent::builder(model)
        .tool(add())
        .on_tool(tower_agent::callback::on_tool_error({
            let seen = seen.clone();
            move |_, error| {
                let field = error
                    .downcast_ref::<InvalidArguments>()
                    .map(|e| e.field.clone());
                let tool = error.call().and_then(|call| call.name.clone());
                seen.lock().unwrap().push((error.kind(), field, tool));
            }
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(
        *seen.lock().unwrap(),
        [
            (
                ErrorKind::InvalidArguments,
                Some("a".to_owned()),
                Some("add".into())
            ),
            (ErrorKind::UnknownTool, None, Some("subtract".into())),
        ]
    );
}

#[tokio::test]
async fn the_text_for_the_model_may_differ_from_the_value() {
    let values = Arc::new(Mutex::new(Vec::new()));
    let model = ScriptedModel::new([Turn::tool("chart", json!(null)), Turn::from_text("nice")]);
    let chart = Tool::function("chart", "Draws.", |_: Value| {
        ToolResponse::new(json!({ "points": [1, 2, 3] })).with_parts([
            Part::from_text("a chart"),
            Part::image(MediaSource::base64("image/png", "iVBORw0")),
        ])
    });
    let agent = Agent::builder(model.clone())
        .tool(chart)
        .on_tool(after_tool({
            let values = values.clone();
            move |_, response| values.lock().unwrap().push(response.value().clone())
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(*values.lock().unwrap(), [json!({ "points": [1, 2, 3] })]);
    let result = model.requests()[1].messages()[2]
        .tool_results()
        .next()
        .unwrap()
        .clone();
    assert_eq!(result.parts.len(), 2);
    assert_eq!(result.text(), "a chart");
}

#[tokio::test]
async fn changed_arguments_reach_the_tool_but_not_the_transcript() {
    let model = ScriptedModel::new([Turn::tool("add", sum(1, 2)), Turn::from_text("done")]);
    let agent = Agent::builder(model.clone())
        .tool(add())
        .on_tool(before_tool(|request| {
            request.arguments_mut()["b"] = json!(40)
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let transcript = model.requests()[1].messages().clone();
    assert_eq!(
        transcript[1].tool_calls().next().unwrap().arguments,
        sum(1, 2)
    );
    assert_eq!(transcript[2].tool_results().next().unwrap().text(), "41.0");
}

#[tokio::test]
async fn a_tool_may_be_any_service() {
    let service = tower::service_fn(|request: ToolRequest| async move {
        Ok::<_, BoxError>(ToolResponse::new(request.arguments().clone()))
    });
    let model = ScriptedModel::new([
        Turn::tool("echo", json!({ "x": 1 })),
        Turn::from_text("done"),
    ]);
    let echo = ToolDeclaration::new("echo", "Says it again.");
    let agent = Agent::builder(model.clone())
        .tool(Tool::service(echo, service))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let answered = model.requests()[1].messages()[2].clone();
    assert_eq!(answered.tool_results().next().unwrap().text(), r#"{"x":1}"#);
}

#[tokio::test(start_paused = true)]
async fn one_tool_may_have_layers_and_callbacks_of_its_own() {
    let model = ScriptedModel::new([
        Turn::tool("wait", json!(80)).and_tool("patient", json!(80)),
        Turn::from_text("done"),
    ]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let impatient = wait()
        .layer(tower::timeout::TimeoutLayer::new(Duration::from_millis(50)))
        .layer(before_tool({
            let seen = seen.clone();
            move |request| seen.lock().unwrap().push(request.name().to_owned())
        }));
    let patient = Tool::function("patient", "Waits.", async |milliseconds: u64| {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        "awake"
    });
    let agent = Agent::builder(model)
        .tools([impatient, patient])
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    let results = response.new_messages().flat_map(Message::tool_results);
    let texts: Vec<_> = results.map(|result| result.text()).collect();
    let timed_out = "timed out: request timed out; the tool was still running, and its outcome is \
                     unknown";
    assert_eq!(texts, [timed_out, "awake"]);
    assert_eq!(*seen.lock().unwrap(), ["wait"]);
}

#[tokio::test]
async fn the_iterations_are_bounded() {
    let endless = || ScriptedModel::always(Turn::tool("add", sum(1, 2)));
    let agent = Agent::builder(endless())
        .tool(add())
        .max_iterations(3)
        .build()
        .unwrap();
    let error = agent.run("?").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MaxIterations);
    assert_eq!(
        error.to_string(),
        "agent call of agent `agent`: too many iterations: no final answer after 3 model calls; \
         raise `max_iterations`, or stop earlier with `stop_when`"
    );

    let mut ends_at_limit = Semantics::default();
    ends_at_limit.run.at_limit = AtLimit::End;
    let agent = Agent::builder(endless())
        .tool(add())
        .max_iterations(3)
        .semantics(ends_at_limit)
        .build()
        .unwrap();
    let response = agent.run("?").await.unwrap();
    assert_eq!(
        (response.end_reason(), response.iterations()),
        (&EndReason::IterationLimit, 3)
    );
    assert_eq!(response.new_messages().len(), 6);

    let none = ScriptedModel::new([]);
    let agent = Agent::builder(none.clone())
        .max_iterations(0)
        .build()
        .unwrap();
    assert_eq!(
        agent.run("?").await.unwrap_err().kind(),
        ErrorKind::MaxIterations
    );
    none.assert_done();
}

#[tokio::test]
async fn stop_when_ends_the_run_after_a_turn() {
    let model = ScriptedModel::new([
        Turn::tool("add", sum(1, 2)).usage(Usage::new(5, 5)),
        Turn::tool("submit", json!(3)).usage(Usage::new(5, 5)),
    ]);
    let agent = Agent::builder(model.clone())
        .tool(add())
        .tool(Tool::function("submit", "", |answer: Value| answer))
        .stop_when(|progress| {
            assert_eq!(
                progress.usage().total(),
                u64::from(progress.iterations()) * 10
            );
            progress.has_called("submit")
        })
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    model.assert_done();
    assert_eq!(
        (response.end_reason(), response.iterations()),
        (&EndReason::StopCondition, 2)
    );
    let last = response.new_messages().next_back().unwrap();
    assert_eq!(last.tool_results().next().unwrap().text(), "3");
}

#[tokio::test]
async fn a_request_brings_history_settings_and_state() {
    let model = ScriptedModel::new([Turn::tool("visit", json!(null)), Turn::from_text("No.")]);
    let visit = Tool::function_with("visit", "", |_: Value, request: ToolRequest| {
        let state = request.context().state().clone();
        state.remove("draft");
        state.set("visits", 8);
    });
    let mut of_agent = Settings::default();
    (of_agent.temperature, of_agent.seed) = (Some(1.0), Some(7));
    let agent = Agent::builder(model.clone())
        .settings(of_agent)
        .tool(visit)
        .build()
        .unwrap();

    let mut of_request = Settings::default();
    of_request.temperature = Some(0.0);
    let state = State::from_iter([
        ("visits".to_owned(), json!(7)),
        ("draft".to_owned(), json!("x")),
    ]);
    let request = AgentRequest::new("And in Oslo?")
        .with_history([Message::user("Rain in Rome?"), Message::assistant("No.")])
        .with_settings(of_request)
        .with_state(state);
    let response = agent.run(request).await.unwrap();

    let asked = &model.requests()[0];
    assert_eq!(
        (asked.settings().temperature, asked.settings().seed),
        (Some(0.0), Some(7))
    );
    assert_eq!(asked.messages().len(), 3);
    assert_eq!(response.new_messages().len(), 3);
    assert_eq!(
        Value::Object(response.state().snapshot()),
        json!({ "visits": 8 })
    );
    let delta = response.state().delta();
    assert_eq!(Value::Object(delta.set), json!({ "visits": 8 }));
    assert_eq!(delta.removed, ["draft"]);
}

#[tokio::test]
async fn a_run_may_be_seen_while_it_is_written() {
    use futures::StreamExt;

    let model = ScriptedModel::new([
        Turn::tool("add", sum(1, 2)),
        Turn::from_text("That makes 3."),
    ]);
    let agent = Agent::builder(model).tool(add()).build().unwrap();

    let mut run = agent.stream("?");
    let mut seen = String::new();
    while let Some(event) = run.next().await {
        if let stream::EventKind::TextDelta { text, .. } = event.kind {
            seen.push_str(&text);
        }
    }

    assert_eq!(seen, "That makes 3.");
    assert_eq!(run.response().await.unwrap().text(), seen);
}

#[tokio::test]
async fn calls_without_an_id_are_distinguished() {
    let nameless = || {
        let call = |n| {
            Part::from(tower_agent::message::ToolCall::new(
                "same",
                "add",
                sum(n, 1),
            ))
        };
        ModelResponse::new(Message::new(Role::Assistant, [call(1), call(2)]))
    };
    let model = ScriptedModel::new([Turn::response(nameless()), Turn::from_text("done")]);
    let agent = Agent::builder(model).tool(add()).build().unwrap();

    let response = agent.run("?").await.unwrap();

    let results: Vec<_> = response
        .new_messages()
        .flat_map(Message::tool_results)
        .collect();
    assert_eq!(
        results.iter().map(|r| r.text()).collect::<Vec<_>>(),
        ["2.0", "3.0"]
    );
    assert_ne!(results[0].call_id, results[1].call_id);
    let asked = response.new_messages().next().unwrap();
    let ids: Vec<_> = asked.tool_calls().map(|call| call.id.clone()).collect();
    assert_eq!(
        ids,
        [results[0].call_id.clone(), results[1].call_id.clone()]
    );
}

#[tokio::test]
async fn any_model_service_will_do() {
    #[derive(Debug, thiserror::Error)]
    #[error("the dog ate it")]
    struct Mine;

    let fails = tower::service_fn(|_: ModelRequest| async { Err::<ModelResponse, _>(Mine) });
    let error = Agent::builder(fails)
        .build()
        .unwrap()
        .run("?")
        .await
        .unwrap_err();
    assert!(error.downcast_ref::<Mine>().is_some());
    assert_eq!(
        error.to_string(),
        "model call of agent `agent`: failed: the dog ate it"
    );
}

#[test]
fn an_agent_that_cannot_work_is_not_built() {
    let builder = || Agent::builder(ScriptedModel::new([]));
    assert!(matches!(
        builder().tool(add()).tool(add()).build(),
        Err(BuildError::Tool(InvalidTool::Duplicate(name))) if &*name == "add"
    ));
    assert!(matches!(
        builder().name("a/b").build(),
        Err(BuildError::Name(_))
    ));
    assert!(matches!(
        builder().name("").build(),
        Err(BuildError::Name(_))
    ));
    assert!(matches!(
        builder().tool_concurrency(0).build(),
        Err(BuildError::NoToolConcurrency)
    ));
}

#[tokio::test]
async fn a_panic_in_stop_when_fails_the_run() {
    let model = ScriptedModel::new([Turn::tool("add", sum(1, 2))]);
    let agent = Agent::builder(model)
        .tool(add())
        .stop_when(|_| panic!("off by one"))
        .build()
        .unwrap();

    let error = agent.run("?").await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Callback);
    assert_eq!(error.message(), "`stop_when` panicked: off by one");
}
