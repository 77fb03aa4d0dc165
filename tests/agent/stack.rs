//! How an agent is put together: the order of callbacks and layers, and what tower's layers do
//! around its calls.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::timeout::TimeoutLayer;
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_agent::callback::wrap_model;
use tower_agent::{Agent, BoxError, ErrorKind, ModelRequest, ModelResponse, Tool, Usage};
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};

use test_support::logger::Logger;
use test_support::trace::Trace;

fn timeout() -> TimeoutLayer {
    TimeoutLayer::new(Duration::from_secs(30))
}

#[tokio::test]
async fn neighbours_form_a_band_and_a_layer_draws_a_line() {
    let written = Trace::default();
    let trace = |name| Logger::new(name, &written);
    let call = Turn::function({
        let written = written.clone();
        move |_| {
            written.push("call");
            Ok(ModelResponse::from_text("done"))
        }
    });
    let agent = Agent::builder(ScriptedModel::new([call]))
        .on_model(trace("a"))
        // Registered for another call, it is no line between neighbours.
        .on_agent(trace("x"))
        .on_agent(trace("y"))
        .on_model(trace("b"))
        .model_layer(timeout())
        .on_model(trace("c"))
        .on_model(trace("d"))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(written.take(), "x> y> a> b> c> d> call <c <d <a <b <x <y");
}

#[tokio::test]
async fn tools_and_agents_keep_the_same_order() {
    let written = Trace::default();
    let trace = |name| Logger::new(name, &written);
    let tool = Tool::function("echo", "", {
        let written = written.clone();
        move |value: Value| {
            written.push("call");
            value
        }
    });
    let model = ScriptedModel::new([Turn::tool("echo", json!(1)), Turn::from_text("done")]);
    let agent = Agent::builder(model)
        .tool(tool)
        .on_agent(trace("o"))
        .agent_layer(timeout())
        .on_agent(trace("p"))
        .on_agent(trace("q"))
        .on_tool(trace("a"))
        .on_tool(trace("b"))
        .tool_layer(timeout())
        .on_tool(trace("c"))
        .on_tool(trace("d"))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(
        written.take(),
        "o> p> q> a> b> c> d> call <c <d <a <b <p <q <o"
    );
}

#[test]
fn explain_shows_the_onion() {
    let unused = Trace::default();
    let trace = |name| Logger::new(name, &unused);
    let agent = Agent::builder(ScriptedModel::new([]))
        .name("librarian")
        .tool(Tool::function("search", "", |value: Value| value).layer(timeout()))
        .tool(Tool::function("lend", "", |value: Value| value))
        .on_agent(trace("audit"))
        .on_model(trace("policy"))
        .on_model(trace("metrics"))
        .model_layer(timeout())
        .model_layer(
            wrap_model(|request, mut next| async move { next.run(request).await }).named("around"),
        )
        .on_model(trace("per attempt"))
        .tool_layer(ConcurrencyLimitLayer::new(2))
        .build()
        .unwrap();

    assert_eq!(
        agent.explain().to_string(),
        "\
agent `librarian`
  audit
    loop of at most 25 model calls
      model call
        policy, metrics
          [TimeoutLayer]
            [around]
              per attempt
                ScriptedModel
      tool calls, 8 at a time
        [ConcurrencyLimitLayer]
          [TimeoutLayer]
            search
          lend
"
    );
}

#[tokio::test(start_paused = true)]
async fn runs_on_one_agent_do_not_wait_for_one_another() {
    let slow = ScriptedModel::always(Turn::from_text("done").latency(Duration::from_secs(1)));
    let agent = Agent::builder(slow).build().unwrap();

    let start = Instant::now();
    let runs = (0..50).map(|_| agent.run("?"));
    let responses = futures::future::try_join_all(runs).await.unwrap();

    assert_eq!(
        (responses.len(), start.elapsed()),
        (50, Duration::from_secs(1))
    );
}

#[tokio::test(start_paused = true)]
async fn readiness_passes_through_the_stack() {
    let model = ScriptedModel::always(Turn::from_text("done").latency(Duration::from_secs(1)));
    let probe = ProbeLayer::new();
    let unused = Trace::default();
    let agent = Agent::builder(model)
        .on_model(Logger::new("a", &unused))
        .model_layer(LoadShedLayer::new())
        .on_model(Logger::new("b", &unused))
        .model_layer(ConcurrencyLimitLayer::new(1))
        .on_model(Logger::new("c", &unused))
        .model_layer(probe.clone())
        .build()
        .unwrap();

    let (first, second) = tokio::join!(agent.run("?"), agent.run("?"));
    assert_eq!(first.unwrap().text(), "done");
    let shed = second.unwrap_err();
    assert_eq!(shed.kind(), ErrorKind::Overloaded);
    assert!(shed.is_retryable());
    // No idle handle keeps the place that was freed.
    assert_eq!(agent.run("?").await.unwrap().text(), "done");
    assert_eq!((probe.violations(), probe.max_in_flight()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_limit_without_shedding_makes_calls_wait() {
    let model = ScriptedModel::always(Turn::from_text("done").latency(Duration::from_secs(1)));
    let agent = Agent::builder(model)
        .model_layer(ConcurrencyLimitLayer::new(1))
        .build()
        .unwrap();

    let start = Instant::now();
    let (a, b, c) = tokio::join!(agent.run("?"), agent.run("?"), agent.run("?"));
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    assert_eq!(start.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_ends_a_streamed_answer_as_a_whole() {
    let model = ScriptedModel::new([Turn::from_text("a long answer").hanging_after(2)]);
    let agent = Agent::builder(model)
        .model_layer(TimeoutLayer::new(Duration::from_millis(50)))
        .build()
        .unwrap();

    let error = agent.stream("?").response().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn tower_layers_wrap_the_agent_as_well() {
    let model = ScriptedModel::new([Turn::pending(), Turn::from_text("done")]);
    let agent = Agent::builder(model.clone()).build().unwrap();
    let mut stack = ServiceBuilder::new()
        .concurrency_limit(1)
        .timeout(Duration::from_secs(5))
        .service(agent);

    let error = stack
        .ready()
        .await
        .unwrap()
        .call("?".into())
        .await
        .unwrap_err();
    assert_eq!(tower_agent::Error::from(error).kind(), ErrorKind::Timeout);
    let response = stack.ready().await.unwrap().call("?".into()).await.unwrap();
    assert_eq!(response.text(), "done");
    model.assert_done();
}

#[tokio::test]
async fn an_agent_is_ready_without_being_asked() {
    let model = tower::service_fn(|_: ModelRequest| async {
        Ok::<_, BoxError>(ModelResponse::from_text("done"))
    });
    let mut agent = Agent::builder(model).build().unwrap();
    assert_eq!(agent.call("?".into()).await.unwrap().text(), "done");
}

#[tokio::test]
async fn failed_attempts_inside_the_stack_count_as_usage_but_not_as_iterations() {
    let model = ScriptedModel::new([
        Turn::from_text("no").usage(Usage::new(10, 1)),
        Turn::from_text("yes").usage(Usage::new(10, 2)),
    ]);
    let twice = wrap_model(|request, mut next| async move {
        next.run(request.clone()).await?;
        next.run(request).await
    });
    let agent = Agent::builder(model).model_layer(twice).build().unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(
        (response.usage(), response.iterations()),
        (Usage::new(20, 3), 1)
    );
}
