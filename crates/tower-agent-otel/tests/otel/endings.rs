//! How spans end, and with which type of error.

use serde_json::{Value, json};
use tower_agent::callback::{before_model, before_tool};
use tower_agent::{
    Action, Agent, AgentRequest, CancellationToken, Error, ErrorKind, Interrupt, ModelResponse,
    Resolution, Tool, ToolResponse,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_test::{ScriptedModel, Turn};

use crate::received::{Look, Spans, of_log};
use crate::structure::echo;
use crate::world::World;

fn errors(spans: &Spans) -> Vec<(String, Option<String>)> {
    let mut errors: Vec<_> = spans
        .0
        .iter()
        .map(|span| (span.name.clone(), span.error()))
        .collect();
    errors.sort();
    errors
}

fn pair(name: &str, error: Option<&str>) -> (String, Option<String>) {
    (name.to_owned(), error.map(str::to_owned))
}

#[tokio::test]
async fn each_kind_of_error_has_its_type() {
    let kinds = [
        (ErrorKind::Timeout, "timeout"),
        (ErrorKind::RateLimited, "rate_limited"),
        (ErrorKind::Overloaded, "overloaded"),
        (ErrorKind::Auth, "auth"),
        (ErrorKind::NotFound, "not_found"),
        (ErrorKind::InvalidRequest, "invalid_request"),
        (ErrorKind::ContextLength, "context_length"),
        (ErrorKind::Provider, "provider"),
        (ErrorKind::Connection, "connection"),
        (ErrorKind::Protocol, "protocol"),
        (ErrorKind::BudgetExceeded, "budget_exceeded"),
        (ErrorKind::Aborted, "aborted"),
        (ErrorKind::Cancelled, "cancelled"),
        (ErrorKind::Other, "_OTHER"),
    ];
    let world = World::new();
    for (kind, expected) in kinds {
        let agent = Agent::builder(ScriptedModel::new([Turn::error(Error::new(kind, "no"))]))
            .global_callbacks(world.telemetry())
            .build()
            .unwrap();
        agent.run("?").await.unwrap_err();
        let expected = [
            pair("chat", Some(expected)),
            pair("invoke_agent agent", Some(expected)),
        ];
        let spans = world.spans();
        assert_eq!(errors(&spans), expected, "{kind:?}");
        // The reason for which no response came.
        let reasons = spans.one("chat").get("gen_ai.response.finish_reasons");
        assert_eq!(reasons.as_deref(), Some("[error]"), "{kind:?}");
    }
}

#[tokio::test]
async fn a_tool_that_fails_panics_or_refuses_has_failed_and_the_agent_has_not() {
    let fails = Tool::function("fails", "Fails.", |_: Value| -> Result<(), Error> {
        Err(Error::new(ErrorKind::Tool, "no"))
    });
    let panics = Tool::function("panics", "Panics.", |_: Value| -> () { panic!("oh no") });
    let refuses = Tool::function("refuses", "Refuses.", |_: Value| {
        ToolResponse::error("not today")
    });
    let world = World::new();
    let turn = Turn::tool("fails", json!({}))
        .and_tool("panics", json!({}))
        .and_tool("refuses", json!({}))
        .and_tool(format!("invented_{}", "é".repeat(1000)), json!({}));
    let agent = Agent::builder(ScriptedModel::new([turn, Turn::from_text("done")]))
        .tools([fails, panics, refuses])
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let data = world.received();
    let expected = [
        pair("chat", None),
        pair("chat", None),
        pair("execute_tool _OTHER", Some("unknown_tool")),
        pair("execute_tool fails", Some("tool")),
        pair("execute_tool panics", Some("tool")),
        pair("execute_tool refuses", Some("tool")),
        pair("invoke_agent agent", None),
    ];
    assert_eq!(errors(&data.spans), expected);
    let invented = data.spans.one("execute_tool _OTHER");
    let name = invented.get("gen_ai.tool.name").unwrap();
    assert_eq!(name, format!("invented_{}", "é".repeat(27)));
    // An answer that is an error is no exception.
    let types: Vec<_> = data
        .logs
        .iter()
        .filter(|log| log.event_name == "gen_ai.execute_tool.exception")
        .map(|log| of_log(log, "exception.type"))
        .collect();
    assert_eq!(types.len(), 3);
    assert!(types.contains(&Some("unknown_tool".into())));
    // A model can make up any number of names; a metric cannot have them all.
    let by_name = data
        .metrics
        .counts("gen_ai.execute_tool.duration", "gen_ai.tool.name");
    let names: Vec<_> = by_name.keys().map(String::as_str).collect();
    assert_eq!(names, ["_OTHER", "fails", "panics", "refuses"]);
}

#[tokio::test]
async fn an_exception_is_an_event_in_its_span_and_a_record_of_the_log() {
    let world = World::new();
    let fails = Tool::function("fails", "Fails.", |_: Value| -> Result<(), Error> {
        Err(Error::new(ErrorKind::Tool, "the secret is 42"))
    });
    let busy = Error::new(ErrorKind::Overloaded, "the secret is 42");
    let model = ScriptedModel::new([Turn::tool("fails", json!({})), Turn::error(busy)]);
    let agent = Agent::builder(model)
        .tool(fails)
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    agent.run("?").await.unwrap_err();
    let data = world.received();
    let told: Vec<_> = data
        .logs
        .iter()
        .map(|log| {
            (
                &*log.event_name,
                of_log(log, "exception.type"),
                log.severity_number,
            )
        })
        .collect();
    let warn = 13;
    let expected = [
        (
            "gen_ai.execute_tool.exception",
            Some("tool".to_owned()),
            warn,
        ),
        (
            "gen_ai.client.operation.exception",
            Some("overloaded".to_owned()),
            warn,
        ),
    ];
    assert_eq!(told, expected);
    assert!(
        data.logs
            .iter()
            .all(|log| of_log(log, "exception.message").is_none())
    );
    let tool = data.spans.one("execute_tool fails");
    assert_eq!(tool.events_of("gen_ai.execute_tool.exception").len(), 1);
    let everything = format!("{:?} {:?}", data.spans.0, data.logs);
    assert!(!everything.contains("secret"), "{everything}");
}

#[tokio::test]
async fn an_interrupted_run_has_not_failed() {
    let world = World::new();
    let model = ScriptedModel::new([Turn::tool("echo", json!(1)).and_tool("asks", json!({}))]);
    let asks = Tool::function("asks", "Asks.", |_: Value| -> Result<(), Error> {
        Err(Error::interrupt(Interrupt::new("q1", "a question")))
    });
    let agent = Agent::builder(model)
        .tool(echo())
        .tool(asks)
        .on_tool(Approval::when(|request| request.name() == "echo"))
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    let response = agent.run("?").await.unwrap();
    assert_eq!(response.interrupts().len(), 2);
    let expected = [
        pair("chat", None),
        pair("execute_tool asks", None),
        pair("execute_tool echo", None),
        pair("invoke_agent agent", None),
    ];
    let data = world.received();
    assert_eq!(errors(&data.spans), expected);
    assert_eq!(data.logs.len(), 0);
}

#[tokio::test]
async fn a_call_that_waits_for_a_person_says_so_and_is_counted_once() {
    let world = World::new();
    let agent = |turn: Turn| {
        Agent::builder(ScriptedModel::new([turn]))
            .tool(echo())
            .on_tool(Approval::of_tools(["echo"]))
            .global_callbacks(world.telemetry())
            .build()
            .unwrap()
    };
    let asks = agent(Turn::tool("echo", json!(1)));
    let paused = asks.run("?").await.unwrap();
    let waiting = |spans: &Spans| {
        let all = spans.0.iter();
        let mut waiting: Vec<_> = all
            .filter(|span| span.get("tower_agent.waiting").as_deref() == Some("true"))
            .map(|span| span.name.clone())
            .collect();
        waiting.sort();
        waiting
    };
    let seen = world.received();
    assert_eq!(
        waiting(&seen.spans),
        ["execute_tool echo", "invoke_agent agent"]
    );
    assert!(
        !seen
            .metrics
            .names()
            .contains(&"gen_ai.execute_tool.duration")
    );

    let resumed = agent(Turn::from_text("done"));
    let yes = Resolution::resolved(&paused.interrupts()[0].id, Decision::Approve);
    let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([yes]);
    assert_eq!(resumed.run(request).await.unwrap().text(), "done");
    // What has come since.
    let seen = world.received();
    assert!(waiting(&seen.spans).is_empty());
    let counted = seen
        .metrics
        .counts("gen_ai.execute_tool.duration", "gen_ai.tool.name");
    assert_eq!(counted, [("echo".to_owned(), 1)].into());
}

#[tokio::test]
async fn an_invocation_that_a_callback_ends_has_not_failed() {
    let world = World::new();
    let agent = Agent::builder(ScriptedModel::new([]))
        .on_model(before_model(|_| Err::<(), _>(Error::end_invocation())))
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let expected = [pair("chat", None), pair("invoke_agent agent", None)];
    assert_eq!(errors(&world.spans()), expected);
}

#[tokio::test]
async fn a_call_that_a_callback_answers_is_a_span_without_tokens() {
    let world = World::new();
    let agent = Agent::builder(ScriptedModel::new([]))
        .on_model(before_model(|_| {
            Action::Respond(ModelResponse::from_text("from the cache"))
        }))
        .on_tool(before_tool(|_| Action::Respond(ToolResponse::new("never"))))
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let data = world.received();
    assert_eq!(
        errors(&data.spans),
        [pair("chat", None), pair("invoke_agent agent", None)]
    );
    assert_eq!(
        data.spans.one("chat").get("gen_ai.usage.input_tokens"),
        None
    );
    assert!(
        !data
            .metrics
            .names()
            .contains(&"gen_ai.client.inference.usage.input_tokens")
    );
}

#[tokio::test]
async fn a_cancelled_run_says_so_in_every_open_span() {
    let world = World::new();
    let token = CancellationToken::new();
    let cancels = token.clone();
    let waits = Tool::function("waits", "Waits.", move |_: Value| {
        cancels.cancel();
        std::future::pending::<Value>()
    });
    let agent = Agent::builder(ScriptedModel::new([Turn::tool("waits", json!({}))]))
        .tool(waits)
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    let request = AgentRequest::new("?").with_cancellation(token);
    assert_eq!(
        agent.run(request).await.unwrap_err().kind(),
        ErrorKind::Cancelled
    );
    let expected = [
        pair("chat", None),
        pair("execute_tool waits", Some("cancelled")),
        pair("invoke_agent agent", Some("cancelled")),
    ];
    assert_eq!(errors(&world.spans()), expected);
}

#[tokio::test]
async fn a_layer_inside_that_panics_is_an_error_of_the_call() {
    let world = World::new();
    let panics = tower::util::MapResultLayer::new(
        |_: Result<ModelResponse, Error>| -> Result<ModelResponse, Error> { panic!("oh no") },
    );
    // Directly inside: nothing of the agent is between the two.
    let bundle = tower_agent::callback::Bundle::new()
        .and(world.telemetry())
        .model_layer(panics);
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
        .global_callbacks(bundle)
        .build()
        .unwrap();
    agent.run("?").await.unwrap_err();
    assert_eq!(
        world.spans().one("chat").error().as_deref(),
        Some("callback")
    );
}
