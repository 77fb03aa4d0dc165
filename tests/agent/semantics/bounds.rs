//! How often: the iterations of a run, the retries of a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tower::ServiceExt;
use tower_agent::callback::{AtLimit, CallbackRules, Remaining, on_model_error, on_tool_error};
use tower_agent::compat::Semantics;
use tower_agent::{
    Agent, Callbacks, EndReason, Error, ErrorKind, ModelRequest, ModelResponse, Recovery, Tool,
};
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::Layer;

use crate::semantics::{echo, results, with};
use test_support::trace::Trace;

// The limit

#[tokio::test]
async fn at_its_limit_an_agent_fails_or_ends_with_what_it_has() {
    for at_limit in [AtLimit::Fail, AtLimit::End] {
        let model =
            ScriptedModel::new([Turn::tool("echo", json!(1)), Turn::tool("echo", json!(2))]);
        let agent = Agent::builder(model.clone())
            .tool(echo())
            .max_iterations(2)
            .semantics(with(|run| run.at_limit = at_limit))
            .build()
            .unwrap();
        let result = agent.run("?").await;
        model.assert_done();
        match at_limit {
            AtLimit::End => {
                let response = result.unwrap();
                assert_eq!(
                    (response.end_reason(), response.iterations()),
                    (&EndReason::IterationLimit, 2)
                );
                assert_eq!(results(&response), ["1", "2"]);
            }
            _ => assert_eq!(result.unwrap_err().kind(), ErrorKind::MaxIterations),
        }
    }
}

#[tokio::test]
async fn an_answer_in_the_last_iteration_is_an_answer() {
    for at_limit in [AtLimit::Fail, AtLimit::End] {
        let semantics = with(|run| run.at_limit = at_limit);
        let agent = Agent::builder(ScriptedModel::new([Turn::from_text("done")]));
        let agent = agent
            .max_iterations(1)
            .semantics(semantics)
            .build()
            .unwrap();
        assert_eq!(
            agent.run("?").await.unwrap().end_reason(),
            &EndReason::Completed
        );
    }
}

// Retries, in an agent

/// How often the model, or a tool, is called that always fails and is always retried.
async fn attempts(semantics: Semantics, of: &str) -> u32 {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let down = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        Error::new(ErrorKind::Provider, "down")
    };
    let tool = down.clone();
    let model = match of {
        "model" => ScriptedModel::always(Turn::function(move |_| Err(down()))),
        _ => ScriptedModel::new([Turn::tool("fail", json!(null)), Turn::from_text("sorry")]),
    };
    let agent = Agent::builder(model)
        .tool(Tool::function("fail", "", move |_: Value| {
            Err::<(), _>(tool())
        }))
        .max_iterations(7)
        .semantics(semantics)
        .on_model(on_model_error(|_, _| Recovery::Retry))
        .on_tool(on_tool_error(|_, _| Recovery::Retry))
        .build()
        .unwrap();
    let _ = agent.run("?").await;
    calls.load(Ordering::SeqCst)
}

#[tokio::test]
async fn a_call_is_made_again_as_often_as_the_preset_says() {
    let mut twice = Semantics::default();
    twice.band.model.retries = Some(2);
    for (semantics, model, tool) in [
        (Semantics::default(), 4, 4),
        // The model as often as it may be called; a tool once.
        (Semantics::adk_elixir(), 8, 2),
        (twice, 3, 4),
    ] {
        assert_eq!(attempts(semantics, "model").await, model, "{semantics:?}");
        assert_eq!(attempts(semantics, "tool").await, tool, "{semantics:?}");
    }
}

/// `on_error` as the error half of `after`s of which the first response wins and the rest run.
#[tokio::test]
async fn the_remaining_on_errors_run_where_the_remaining_afters_do() {
    let mut rules = CallbackRules::default();
    rules.after_response = Remaining::Notify;
    rules.after_composes = false;
    rules.fallback = Remaining::Notify;
    rules.fail_is_failure = true;
    let trace = Trace::default();
    let fallback = |name: &'static str| {
        let trace = trace.clone();
        on_model_error(move |_, _| {
            trace.push(name);
            Recovery::Fallback(ModelResponse::from_text(name))
        })
    };
    let callbacks = Callbacks::new()
        .with(fallback("first"))
        .with(fallback("second"));
    let down = Turn::error(Error::new(ErrorKind::Provider, "down"));
    let model = callbacks
        .with_semantics(rules)
        .layer(ScriptedModel::new([down]));
    let response = model.oneshot(ModelRequest::default()).await.unwrap();
    assert_eq!(
        (response.message().text().as_str(), &*trace.take()),
        ("first", "first second")
    );
}
