//! The tree of spans.

use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use tower_agent::context::ConversationId;
use tower_agent::{Agent, AgentRequest, Request, State, Tool, ToolRequest};
use tower_agent_test::{ScriptedModel, Turn};
use tracing::{info, info_span};

use crate::received::{Look, Spans};
use crate::world::World;

pub(crate) fn echo() -> Tool {
    Tool::function("echo", "Says it again.", |value: Value| value)
}

fn says(name: &str, text: &str) -> Agent {
    Agent::builder(ScriptedModel::always(Turn::from_text(text)))
        .name(name)
        .build()
        .unwrap()
}

#[tokio::test]
async fn parallel_tool_calls_are_siblings_between_two_model_calls() {
    let world = World::new();
    let turn = Turn::tool("echo", json!(1)).and_tool("later", json!(2));
    let later = Tool::function("later", "Later.", async |value: Value| {
        tokio::task::yield_now().await;
        value
    });
    let agent = Agent::builder(ScriptedModel::new([turn, Turn::from_text("done")]))
        .name("clerk")
        .tool(echo())
        .tool(later)
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();

    let spans = world.spans();
    assert_eq!(
        spans.tree(),
        "invoke_agent clerk(chat, execute_tool echo, execute_tool later, chat)"
    );
    let agent = spans.one("invoke_agent clerk");
    let tool = spans.one("execute_tool echo");
    assert!(spans.0.iter().all(|span| span.trace_id == agent.trace_id));
    spans
        .0
        .iter()
        .for_each(|inner| agent.lasts_as_long_as(inner));
    assert_eq!(
        agent.get("gen_ai.operation.name").as_deref(),
        Some("invoke_agent")
    );
    assert_eq!(agent.get("gen_ai.agent.name").as_deref(), Some("clerk"));
    assert_eq!(
        tool.get("gen_ai.operation.name").as_deref(),
        Some("execute_tool")
    );
    assert_eq!(tool.get("gen_ai.tool.name").as_deref(), Some("echo"));
    assert_eq!(tool.get("gen_ai.tool.type").as_deref(), Some("function"));
    assert_eq!(tool.get("gen_ai.agent.name").as_deref(), Some("clerk"));
    assert_eq!(tool.get("gen_ai.tool.call.id").as_deref(), Some("call_1"));
    assert_eq!(
        tool.get("gen_ai.tool.description").as_deref(),
        Some("Says it again.")
    );
    let kinds: Vec<_> = spans
        .0
        .iter()
        .map(|span| (span.name.starts_with("chat"), span.kind))
        .collect();
    // CLIENT is 3, INTERNAL is 1.
    assert!(
        kinds
            .iter()
            .all(|(is_chat, kind)| *kind == if *is_chat { 3 } else { 1 })
    );
    assert!(spans.0.iter().all(|span| span.error().is_none()));
}

#[tokio::test]
async fn an_agent_used_as_a_tool_is_inside_the_tool_call() {
    let world = World::new();
    let boss = ScriptedModel::new([
        Turn::tool("worker", json!({ "request": "Where?" })),
        Turn::from_text("done"),
    ]);
    let boss = Agent::builder(boss)
        .name("boss")
        .tool(says("worker", "Oslo").into_tool("Works."))
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    boss.run("?").await.unwrap();
    assert_eq!(
        world.spans().tree(),
        "invoke_agent boss(chat, execute_tool worker(invoke_agent worker(chat)), chat)"
    );
}

#[tokio::test]
async fn an_agent_that_takes_over_is_inside_the_one_that_transferred() {
    let world = World::new();
    let desk = ScriptedModel::new([Turn::tool(
        "transfer_to_agent",
        json!({ "agent_name": "billing" }),
    )]);
    let desk = Agent::builder(desk)
        .name("desk")
        .sub_agent(says("billing", "Paid."))
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    assert_eq!(desk.run("?").await.unwrap().text(), "Paid.");
    assert_eq!(
        world.spans().tree(),
        "invoke_agent desk(chat, execute_tool transfer_to_agent, invoke_agent billing(chat))"
    );
}

#[tokio::test]
async fn a_team_is_a_workflow_around_its_members() {
    let world = World::new();
    let critics = Agent::parallel("critics")
        .agent(says("facts", "True."))
        .agent(says("style", "Long."));
    let essay = Agent::sequential("essay")
        .agent(says("writer", "An essay."))
        .agent(critics.build().unwrap())
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    essay.run("?").await.unwrap();
    let spans = world.spans();
    assert_eq!(
        spans.tree(),
        "invoke_workflow essay(invoke_agent writer(chat), \
         invoke_workflow critics(invoke_agent facts(chat), invoke_agent style(chat)))"
    );
    let essay = spans.one("invoke_workflow essay");
    assert_eq!(
        essay.get("gen_ai.operation.name").as_deref(),
        Some("invoke_workflow")
    );
    assert_eq!(essay.get("gen_ai.workflow.name").as_deref(), Some("essay"));
}

#[tokio::test]
async fn log_lines_and_spans_of_a_tool_are_inside_its_call() {
    let world = World::new();
    let slow = Tool::function("slow", "Takes its time.", async |n: u32| {
        info!(n, "begins");
        tokio::task::yield_now().await;
        let inner = info_span!("query", n);
        tracing::Instrument::instrument(tokio::task::yield_now(), inner).await;
        info!(n, "ends");
        n
    });
    let turn = Turn::tool("slow", json!({ "value": 1 })).and_tool("slow", json!({ "value": 2 }));
    let agent = Agent::builder(ScriptedModel::new([turn, Turn::from_text("done")]))
        .tool(slow)
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();

    let spans = world.spans();
    let calls: Vec<_> = spans
        .0
        .iter()
        .filter(|span| span.name == "execute_tool slow")
        .collect();
    assert_eq!(calls.len(), 2);
    for call in calls {
        let inside: Vec<_> = spans
            .0
            .iter()
            .filter(|span| span.parent_span_id == call.span_id)
            .collect();
        assert!(
            matches!(inside[..], [query] if query.name == "query"),
            "{}",
            spans.tree()
        );
        let n = inside[0].get("n");
        let said: Vec<_> = call
            .events
            .iter()
            .map(|event| (&*event.name, crate::received::of_event(event, "n")))
            .collect();
        assert_eq!(said, [("begins", n.clone()), ("ends", n)]);
    }
}

/// Each attempt of a model is a span of its HTTP client, opened at one poll and closed at another.
#[tokio::test]
async fn the_spans_of_a_models_http_client_are_inside_its_call() {
    use std::sync::atomic::{AtomicU32, Ordering};
    use tower_agent::callback::on_model_error;
    use tower_agent::{BoxError, Error, ErrorKind, ModelRequest, ModelResponse, Recovery};

    let world = World::new();
    let sent = std::sync::Arc::new(AtomicU32::new(0));
    let model = tower::service_fn(move |_: ModelRequest| {
        let attempt = sent.fetch_add(1, Ordering::Relaxed);
        let http = async move {
            tokio::task::yield_now().await;
            let inner = info_span!("TLS");
            tracing::Instrument::instrument(tokio::task::yield_now(), inner).await;
            match attempt {
                0 => Err(Error::new(ErrorKind::Overloaded, "busy").into()),
                _ => Ok::<_, BoxError>(ModelResponse::from_text("hi")),
            }
        };
        async move {
            tokio::task::yield_now().await;
            tracing::Instrument::instrument(http, info_span!("POST", attempt)).await
        }
    });
    let agent = Agent::builder(model)
        .on_model(on_model_error(|_, _| Recovery::Retry))
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    let (a, b) = futures::join!(agent.run("?"), agent.run("?"));
    a.and(b).unwrap();
    let spans = world.spans();
    let mut trees: Vec<_> = spans.roots().iter().map(|root| spans.under(root)).collect();
    trees.sort();
    // Of the two runs at once, one meets the busy server.
    let run = |inside: &str| format!("invoke_agent agent(chat({inside}))");
    assert_eq!(trees, [run("POST(TLS)"), run("POST(TLS), POST(TLS)")]);
}

#[tokio::test]
async fn work_that_a_tool_leaves_behind_does_not_keep_its_span_open() {
    let world = World::new();
    let (done, wait) = tokio::sync::oneshot::channel::<()>();
    let wait = std::sync::Mutex::new(Some(wait));
    let starts = Tool::function("starts", "Starts it.", move |_: Value| {
        let wait = wait.lock().unwrap().take().unwrap();
        let work = async move {
            drop(wait.await);
        };
        tokio::spawn(tracing::Instrument::instrument(work, info_span!("work")));
        "started"
    });
    let turn = Turn::tool("starts", json!({}));
    let agent = Agent::builder(ScriptedModel::new([turn, Turn::from_text("done")]))
        .tool(starts)
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let spans = world.spans();
    assert_eq!(
        spans.tree(),
        "invoke_agent agent(chat, execute_tool starts, chat)"
    );
    let call = spans.one("execute_tool starts").span_id.clone();

    done.send(()).unwrap();
    while tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
        > 0
    {
        tokio::task::yield_now().await;
    }
    let later = world.spans();
    assert!(matches!(&later.0[..], [work] if work.name == "work" && work.parent_span_id == call));
}

#[tokio::test]
async fn a_span_around_the_run_is_the_root() {
    let world = World::new();
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    let request = tracing::Instrument::instrument(agent.run("?"), info_span!("request"));
    request.await.unwrap();
    // A stream is polled by whoever reads it.
    let events = agent.stream("?");
    let count = tracing::Instrument::instrument(events.count(), info_span!("request"));
    count.await;
    let tree = "request(invoke_agent agent(chat))";
    assert_eq!(world.spans().tree(), format!("{tree}, {tree}"));
}

#[tokio::test]
async fn a_schema_check_can_be_given_with_one_run() {
    let world = World::new();
    let agent = Agent::builder(ScriptedModel::new([
        Turn::from_text("not seen"),
        Turn::tool("worker", json!({ "request": "Where?" })),
        Turn::from_text("done"),
    ]))
    .tool(says("worker", "Oslo").into_tool("Works."))
    .build()
    .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(world.spans().0.len(), 0);
    agent
        .run(AgentRequest::new("?").with_callbacks(world.telemetry()))
        .await
        .unwrap();
    assert_eq!(
        world.spans().tree(),
        "invoke_agent agent(chat, execute_tool worker(invoke_agent worker(chat)), chat)"
    );
}

#[tokio::test]
async fn every_span_of_a_conversation_has_its_id() {
    let world = World::new();
    let telemetry = world
        .telemetry()
        .conversation_id(|run| run.state().get("thread")?.as_str().map(str::to_owned));
    let model = ScriptedModel::new([Turn::tool("echo", json!(1)), Turn::from_text("done")]);
    let agent = Agent::builder(model)
        .tool(echo())
        .global_callbacks(telemetry)
        .build()
        .unwrap();
    let state = State::from_iter([("thread".to_owned(), json!("t1"))]);
    agent
        .run(AgentRequest::new("?").with_state(state))
        .await
        .unwrap();
    let spans = world.spans();
    assert_eq!(spans.0.len(), 4);
    assert!(
        spans
            .0
            .iter()
            .all(|span| span.get("gen_ai.conversation.id").as_deref() == Some("t1"))
    );
}

#[tokio::test]
async fn a_runs_own_conversation_id_is_on_every_span_from_the_root_to_those_of_a_sub_agent() {
    let world = World::new();
    let agent = Agent::builder(ScriptedModel::new([
        Turn::tool("worker", json!({ "request": "Where?" })),
        Turn::from_text("done"),
    ]))
    .tool(says("worker", "Oslo").into_tool("Works."))
    .global_callbacks(world.telemetry())
    .build()
    .unwrap();
    let request = AgentRequest::new("?").with_extension(ConversationId::new("t1"));
    agent.stream(request).response().await.unwrap();
    let spans = world.spans();
    assert_eq!(spans.0.len(), 6);
    for span in &spans.0 {
        let id = span.get("gen_ai.conversation.id");
        assert_eq!(id.as_deref(), Some("t1"));
    }
}

#[tokio::test]
async fn a_run_that_goes_on_stays_in_its_conversation() {
    let world = World::new();
    let ids = |spans: &Spans| -> Vec<_> {
        let mut ids: Vec<_> = spans
            .0
            .iter()
            .map(|span| span.get("gen_ai.conversation.id").unwrap())
            .collect();
        ids.dedup();
        ids
    };
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("Yes.")))
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    let first = agent
        .run(AgentRequest::new("?").with_extension(ConversationId::new("t1")))
        .await
        .unwrap();
    // Neither extensions nor the state are part of a checkpoint.
    let request = AgentRequest::resume(first.checkpoint()).with_message("And now?");
    agent.run(request).await.unwrap();
    assert_eq!(ids(&world.spans()), ["t1"]);

    // Without an id, a conversation has that of its first run.
    let request = AgentRequest::new("?").with_run_id("run 1");
    let first = agent.run(request).await.unwrap();
    let request = AgentRequest::resume(first.checkpoint()).with_message("And now?");
    agent.run(request.with_run_id("run 2")).await.unwrap();
    assert_eq!(ids(&world.spans()), ["run 1"]);

    // The id of a sub-agent is not that of the run.
    let inner = says("inner", "Oslo");
    let outer = Agent::builder(ScriptedModel::new([
        Turn::tool("ask", json!({})),
        Turn::from_text("done"),
    ]))
    .tool(Tool::function_with(
        "ask",
        "Asks.",
        move |_: Value, call: ToolRequest| {
            let request = AgentRequest::new("?")
                .with_context(call.context().clone())
                .with_extension(ConversationId::new("t2"));
            let inner = inner.clone();
            async move { inner.run(request).await.map(|response| response.text()) }
        },
    ))
    .global_callbacks(world.telemetry())
    .build()
    .unwrap();
    let request = AgentRequest::new("?").with_run_id("run 3");
    outer.run(request).await.unwrap();
    let spans = world.spans();
    for span in &spans.0 {
        let id = span.get("gen_ai.conversation.id").unwrap();
        let is_inner = span.name == "invoke_agent inner" || id == "t2";
        assert_eq!(id, if is_inner { "t2" } else { "run 3" }, "{}", span.name);
    }
    assert!(ids(&spans).contains(&"run 3".to_owned()));
}

#[tokio::test]
async fn two_runs_at_once_are_two_traces() {
    let world = World::new();
    let turn = |text: &str| Turn::from_text(text).latency(Duration::from_millis(1));
    let model = ScriptedModel::new([turn("a"), turn("b")]);
    let agent = Agent::builder(model)
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    let (a, b) = futures::join!(agent.run("?"), agent.run("?"));
    a.and(b).unwrap();
    let spans = world.spans();
    let tree = "invoke_agent agent(chat)";
    assert_eq!(spans.tree(), format!("{tree}, {tree}"));
    let traces: std::collections::BTreeSet<_> = spans.0.iter().map(|span| &span.trace_id).collect();
    assert_eq!(traces.len(), 2);
}

#[tokio::test]
async fn without_a_subscriber_metrics_are_recorded_all_the_same() {
    use opentelemetry_sdk::metrics::SdkMeterProvider;
    let meters = SdkMeterProvider::builder().build();
    let telemetry = tower_agent_otel::OpenTelemetry::new().meter_provider(&meters);
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
        .global_callbacks(telemetry)
        .build()
        .unwrap();
    assert_eq!(agent.run("?").await.unwrap().text(), "hi");
}

#[tokio::test]
async fn a_subscriber_that_comes_later_sees_the_next_run() {
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
        .global_callbacks(tower_agent_otel::OpenTelemetry::new())
        .build()
        .unwrap();
    agent.run("Nobody listens.").await.unwrap();
    let world = World::new();
    agent.run("Somebody does.").await.unwrap();
    assert_eq!(world.spans().tree(), "invoke_agent agent(chat)");
}

/// Without `tracing`, the spans of the program's own tracer go on inside.
#[tokio::test]
async fn without_a_subscriber_the_span_around_a_run_is_that_of_its_tools() {
    use opentelemetry::trace::{FutureExt, TraceContextExt, Tracer, TracerProvider};
    use opentelemetry_sdk::trace::SdkTracerProvider;

    let tracer = SdkTracerProvider::builder().build().tracer("own");
    let around = opentelemetry::Context::current_with_span(tracer.start("request"));
    let expected = around.span().span_context().trace_id();
    let traced = Tool::function("traced", "Tells its trace.", |_: Value| {
        opentelemetry::Context::map_current(|context| {
            context.span().span_context().trace_id().to_string()
        })
    });
    let turns = [Turn::tool("traced", json!({})), Turn::from_text("done")];
    let agent = Agent::builder(ScriptedModel::new(turns))
        .tool(traced)
        .global_callbacks(tower_agent_otel::OpenTelemetry::new())
        .build()
        .unwrap();
    let response = agent.run("?").with_context(around).await.unwrap();
    let result = response.messages()[2].tool_results().next().unwrap();
    assert_eq!(result.text(), expected.to_string());
}

/// The future of a layer directly inside, which says when it is made and dropped.
struct Says<F>(std::pin::Pin<Box<F>>);

impl<F: Future> Future for Says<F> {
    type Output = F::Output;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<F::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<F> Drop for Says<F> {
    fn drop(&mut self) {
        info!("dropped");
    }
}

#[tokio::test]
async fn log_lines_of_a_layer_are_inside_its_call_also_on_drop() {
    use futures::FutureExt;
    use tower_agent::callback::Bundle;

    // A call that ends, and one that is dropped.
    for (turn, ends) in [(Turn::from_text("hi"), true), (Turn::pending(), false)] {
        let world = World::new();
        let says = tower::util::MapFutureLayer::new(|future| {
            info!("called");
            Says(Box::pin(future))
        });
        let bundle = Bundle::new().and(world.telemetry()).model_layer(says);
        let agent = Agent::builder(ScriptedModel::new([turn])).global_callbacks(bundle);
        let agent = agent.build().unwrap();
        assert_eq!(agent.run("?").now_or_never().is_some(), ends);
        let spans = world.spans();
        let said: Vec<_> = spans
            .one("chat")
            .events
            .iter()
            .map(|event| &*event.name)
            .collect();
        assert_eq!(said, ["called", "dropped"]);
    }
}
