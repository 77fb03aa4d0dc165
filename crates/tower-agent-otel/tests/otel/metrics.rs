//! Metrics: durations, tokens, chunks, and calls of a run.

use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};
use tower_agent::callback::{Bundle, after_model, before_model, on_model_error, wrap_model};
use tower_agent::stream::{Delta, EventKind};
use tower_agent::{
    Action, Agent, BoxError, Error, ErrorKind, Message, ModelRequest, ModelResponse, Recovery,
    Tool, ToolResponse, Usage,
};
use tower_agent_test::{ScriptedModel, Turn};

use crate::received::{Look, Metrics};
use crate::structure::echo;
use crate::world::World;

fn usage(input: u64, output: u64) -> Usage {
    let mut usage = Usage::new(input, output);
    usage.cached_input_tokens = 1;
    usage
}

fn totals(metrics: &Metrics) -> [i64; 3] {
    ["input_tokens", "output_tokens", "cache_read.input_tokens"]
        .map(|kind| metrics.total(&format!("gen_ai.client.inference.usage.{kind}")))
}

#[tokio::test]
async fn tokens_are_counted_once_in_a_tree_of_agents() {
    let world = World::new();
    let worker = ScriptedModel::new([Turn::from_text("Oslo").usage(usage(10, 1))]);
    let worker = Agent::builder(worker).name("worker").build().unwrap();
    let boss = ScriptedModel::new([
        Turn::tool("worker", json!({ "request": "?" })).usage(usage(100, 5)),
        Turn::from_text("done").usage(usage(1000, 7)),
    ]);
    let boss = Agent::builder(boss)
        .name("boss")
        .tool(worker.into_tool("Works."))
        .build()
        .unwrap();
    let team = Agent::sequential("team")
        .agent(boss)
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    let response = team.run("?").await.unwrap();
    assert_eq!(response.usage().total(), 1110 + 13);

    let data = world.received();
    assert_eq!(totals(&data.metrics), [1110, 13, 3]);
    let sums = data
        .metrics
        .sums("gen_ai.client.inference.operation.input_tokens", "");
    assert_eq!(sums.values().sum::<f64>(), 1110.0);
    for span in &data.spans.0 {
        // An agent's are those of its calls, and backends that add up all spans find none of its
        // own.
        let has_tokens = span.get("gen_ai.usage.input_tokens").is_some();
        let is_agent = span.name.starts_with("invoke_agent");
        assert_eq!(has_tokens, span.name == "chat" || is_agent, "{}", span.name);
        let own = span.get("llm.token_count.prompt");
        assert_eq!(own.as_deref(), is_agent.then_some("0"), "{}", span.name);
    }
    let [attributes] = &data
        .metrics
        .attributes("gen_ai.client.inference.usage.input_tokens")[..]
    else {
        panic!("several")
    };
    assert_eq!(attributes["gen_ai.token.modality"], "unknown");
    assert_eq!(attributes["gen_ai.operation.name"], "chat");
}

#[tokio::test]
async fn tokens_of_a_response_that_is_replaced_are_spent_all_the_same() {
    let world = World::new();
    let model = ScriptedModel::new([Turn::from_text("rude").usage(usage(10, 4))]);
    let agent = Agent::builder(model)
        .on_model(after_model(|_, _| {
            Action::Respond(ModelResponse::from_text("kind"))
        }))
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    assert_eq!(agent.run("?").await.unwrap().text(), "kind");
    assert_eq!(totals(&world.received().metrics), [10, 4, 1]);
}

#[tokio::test]
async fn a_call_that_fails_counts_with_no_tokens() {
    let world = World::new();
    let busy = Error::new(ErrorKind::Overloaded, "busy");
    let agent = Agent::builder(ScriptedModel::new([Turn::error(busy)]))
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    agent.run("?").await.unwrap_err();
    let metrics = world.received().metrics;
    assert!(
        metrics
            .names()
            .contains(&"gen_ai.client.inference.usage.input_tokens")
    );
    assert_eq!(totals(&metrics), [0, 0, 0]);
    for kind in ["input_tokens", "output_tokens"] {
        let metric = format!("gen_ai.client.inference.operation.{kind}");
        let [point] = metrics.histogram(&metric) else {
            panic!("{metric}")
        };
        assert_eq!((point.count, point.sum), (1, Some(0.0)));
        assert_eq!(metrics.attributes(&metric)[0]["error.type"], "overloaded");
    }
    assert!(
        metrics
            .names()
            .contains(&"gen_ai.client.inference.usage.reasoning.output_tokens")
    );
}

#[tokio::test]
async fn durations_and_calls_are_recorded_for_each_agent_team_and_tool() {
    let world = World::new();
    let worker = ScriptedModel::new([
        Turn::tool("echo", json!(1)).and_tool("echo", json!(2)),
        Turn::from_text("Oslo"),
    ]);
    let worker = Agent::builder(worker)
        .name("worker")
        .tool(echo())
        .build()
        .unwrap();
    let boss = ScriptedModel::new([
        Turn::tool("worker", json!({ "request": "?" })),
        Turn::tool("echo", json!(1)),
        Turn::from_text("done"),
    ]);
    let boss = Agent::builder(boss)
        .name("boss")
        .tool(worker.into_tool("Works."))
        .tool(echo());
    let team = Agent::sequential("team").agent(boss.build().unwrap());
    let team = team.global_callbacks(world.telemetry()).build().unwrap();
    team.run("?").await.unwrap();

    let metrics = world.received().metrics;
    let by_agent = |metric: &str| metrics.sums(metric, "gen_ai.agent.name");
    let calls = by_agent("gen_ai.invoke_agent.inference_calls");
    assert_eq!((calls["boss"], calls["worker"]), (3.0, 2.0));
    let calls = by_agent("gen_ai.invoke_agent.tool_calls");
    assert_eq!((calls["boss"], calls["worker"]), (2.0, 2.0));
    let count = |metric, key| metrics.counts(metric, key);
    assert_eq!(
        count("gen_ai.invoke_agent.duration", "gen_ai.agent.name")["boss"],
        1
    );
    assert_eq!(
        count("gen_ai.invoke_workflow.duration", "gen_ai.workflow.name")["team"],
        1
    );
    assert_eq!(
        count("gen_ai.execute_tool.duration", "gen_ai.tool.name")["echo"],
        3
    );
    assert_eq!(
        count("gen_ai.client.inference.duration", "error.type")[""],
        5
    );
    let bounds = &metrics.histogram("gen_ai.client.inference.duration")[0].explicit_bounds;
    assert_eq!((bounds.len(), bounds[0], bounds[13]), (14, 0.01, 81.92));
    // Each metric has the attributes that the conventions list for it, and no other.
    let keys = |metric| -> Vec<String> { metrics.attributes(metric)[0].keys().cloned().collect() };
    assert_eq!(keys("gen_ai.invoke_agent.duration"), ["gen_ai.agent.name"]);
    assert_eq!(
        keys("gen_ai.invoke_agent.inference_calls"),
        ["gen_ai.agent.name"]
    );
    assert_eq!(
        keys("gen_ai.invoke_agent.tool_calls"),
        ["gen_ai.agent.name"]
    );
    assert_eq!(
        keys("gen_ai.invoke_workflow.duration"),
        ["gen_ai.workflow.name"]
    );
    let of_a_tool = ["gen_ai.agent.name", "gen_ai.tool.name", "gen_ai.tool.type"];
    assert_eq!(keys("gen_ai.execute_tool.duration"), of_a_tool);
    let of_a_model = ["gen_ai.operation.name", "gen_ai.provider.name"];
    assert_eq!(keys("gen_ai.client.inference.duration"), of_a_model);
    let by_agent = metrics.counts("gen_ai.execute_tool.duration", "gen_ai.agent.name");
    assert_eq!((by_agent["boss"], by_agent["worker"]), (2, 2));
}

#[tokio::test]
async fn a_streamed_call_has_the_time_to_its_first_chunk_and_between_chunks() {
    let world = World::new();
    let model = ScriptedModel::new([Turn::from_text("abcdef")]).chunk_size(2);
    let agent = Agent::builder(model)
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    let told: Vec<_> = agent.stream("?").collect().await;
    assert!(!told.is_empty());
    let data = world.received();
    let chat = data.spans.one("chat");
    assert_eq!(chat.get("gen_ai.request.stream").as_deref(), Some("true"));
    let first: f64 = chat
        .get("gen_ai.response.time_to_first_chunk")
        .unwrap()
        .parse()
        .unwrap();
    let lasted = (chat.end_time_unix_nano - chat.start_time_unix_nano) as f64 / 1e9;
    assert!(first > 0.0 && first <= lasted, "{first} of {lasted}");
    let count = |metric: &str| {
        data.metrics
            .counts(metric, "error.type")
            .values()
            .sum::<u64>()
    };
    assert_eq!(count("gen_ai.client.inference.time_to_first_chunk"), 1);
    assert_eq!(count("gen_ai.client.inference.time_per_output_chunk"), 2);
}

#[tokio::test]
async fn a_call_that_is_not_streamed_has_no_chunks() {
    let world = World::new();
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("abcdef")]))
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let data = world.received();
    assert_eq!(
        data.spans
            .one("chat")
            .get("gen_ai.response.time_to_first_chunk"),
        None
    );
    assert!(
        !data
            .metrics
            .names()
            .iter()
            .any(|name| name.contains("chunk"))
    );
}

#[tokio::test]
async fn a_streamed_text_does_not_change() {
    let world = World::new();
    let plain = || ScriptedModel::new([Turn::from_text("abcdef")]).chunk_size(2);
    let watched = Agent::builder(plain())
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    let alone = Agent::builder(plain()).build().unwrap();
    let told = async |agent: Agent| -> Vec<_> {
        test_support::deltas(
            agent
                .stream(Message::user("?").text())
                .collect::<Vec<_>>()
                .await,
        )
    };
    assert_eq!(told(watched).await, told(alone).await);
}

/// A model that answers after 2 seconds, and goes on after another.
async fn slow(request: ModelRequest) -> Result<ModelResponse, BoxError> {
    let sender = request.delta_sender().unwrap();
    let mut attempt = sender.open();
    tokio::time::sleep(Duration::from_secs(2)).await;
    attempt.send(Delta::Text("a".into())).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    attempt.send(Delta::Text("b".into())).await?;
    Ok(ModelResponse::from(attempt.finish().await?))
}

#[tokio::test(start_paused = true)]
async fn times_are_those_of_the_model_and_not_of_a_slow_consumer() {
    for (pause, between_chunks) in [(0, 1.0), (10, 0.0)] {
        let world = World::new();
        let agent = Agent::builder(tower::service_fn(slow))
            .global_callbacks(world.telemetry())
            .build()
            .unwrap();
        let began = tokio::time::Instant::now();
        let mut events = agent.stream("?");
        while let Some(event) = events.next().await {
            if matches!(event.kind, EventKind::TextDelta { .. }) {
                tokio::time::sleep(Duration::from_secs(pause)).await;
            }
        }
        let lasted = began.elapsed().as_secs_f64();
        let data = world.received();
        let sum = |metric: &str| data.metrics.sums(metric, "").values().sum::<f64>();
        assert_eq!(sum("gen_ai.client.inference.time_to_first_chunk"), 2.0);
        // The second chunk comes while a slow consumer is at the first.
        assert_eq!(
            sum("gen_ai.client.inference.time_per_output_chunk"),
            between_chunks
        );
        let duration = sum("gen_ai.client.inference.duration");
        assert!((3.0..=lasted).contains(&duration), "{duration} of {lasted}");
        assert_eq!(sum("gen_ai.invoke_agent.duration"), duration);
        let first = data
            .spans
            .one("chat")
            .get("gen_ai.response.time_to_first_chunk");
        assert_eq!(first.as_deref(), Some("2"));
    }
}

#[tokio::test]
async fn a_layer_that_asks_twice_has_spent_the_tokens_of_both() {
    let world = World::new();
    let twice = wrap_model(async |request, mut next| {
        next.run(request.clone()).await?;
        next.run(request).await
    });
    let mut thought = usage(20, 6);
    (thought.reasoning_tokens, thought.cache_write_tokens) = (5, 3);
    let model = ScriptedModel::new([
        Turn::from_text("a").usage(usage(10, 4)),
        Turn::from_text("b").usage(thought),
    ]);
    let agent = Agent::builder(model)
        .model_layer(twice)
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let data = world.received();
    assert_eq!(totals(&data.metrics), [30, 10, 2]);
    let total = |kind| {
        data.metrics
            .total(&format!("gen_ai.client.inference.usage.{kind}"))
    };
    assert_eq!(
        (
            total("reasoning.output_tokens"),
            total("cache_write.input_tokens")
        ),
        (5, 3)
    );
    let chat = data.spans.one("chat");
    let agent = data.spans.one("invoke_agent agent");
    for (kind, of_call, of_agent) in [
        ("input_tokens", Some("30"), Some("30")),
        ("output_tokens", Some("10"), Some("10")),
        ("cache_read.input_tokens", Some("2"), Some("2")),
        ("cache_write.input_tokens", Some("3"), Some("3")),
        ("reasoning.output_tokens", Some("5"), None),
    ] {
        let key = format!("gen_ai.usage.{kind}");
        assert_eq!(chat.get(&key).as_deref(), of_call, "{kind} of the call");
        assert_eq!(agent.get(&key).as_deref(), of_agent, "{kind} of the agent");
    }
}

/// A callback may skip those that come after it; not what is counted.
#[tokio::test]
async fn a_callback_that_skips_the_rest_does_not_skip_the_tokens() {
    let world = World::new();
    let skips = || Bundle::new().on_model(before_model(|_| Action::SkipRest));
    let inside = Bundle::new().innermost_model(before_model(|_| Action::SkipRest));
    let model = || ScriptedModel::new([Turn::from_text("hi").usage(usage(10, 4))]);
    for agent in [
        Agent::builder(model())
            .callbacks(skips())
            .global_callbacks(world.telemetry()),
        Agent::builder(model())
            .global_callbacks(world.telemetry())
            .global_callbacks(skips()),
        Agent::builder(model())
            .global_callbacks(skips())
            .global_callbacks(world.telemetry()),
        Agent::builder(model())
            .callbacks(skips())
            .callbacks(world.telemetry()),
        Agent::builder(model())
            .global_callbacks(inside)
            .global_callbacks(world.telemetry()),
    ] {
        agent.build().unwrap().run("?").await.unwrap();
    }
    let sums = world.received().metrics;
    assert_eq!(totals(&sums), [50, 20, 5]);
}

/// The reader of a stream saw this chunk first, although it was taken back.
#[tokio::test(start_paused = true)]
async fn the_first_chunk_is_that_of_the_first_attempt() {
    let world = World::new();
    let is_first = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let model = tower::service_fn(move |request: ModelRequest| {
        let fails = is_first.swap(false, std::sync::atomic::Ordering::Relaxed);
        async move {
            let response = slow(request).await?;
            if fails {
                return Err(Error::new(ErrorKind::Overloaded, "busy").into());
            }
            Ok::<_, BoxError>(response)
        }
    });
    let agent = Agent::builder(model)
        .on_model(on_model_error(|_, _| Recovery::Retry))
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    agent.stream("?").count().await;
    let data = world.received();
    let first = data
        .spans
        .one("chat")
        .get("gen_ai.response.time_to_first_chunk");
    assert_eq!(first.as_deref(), Some("2"));
    let sum = |metric: &str| data.metrics.sums(metric, "").values().sum::<f64>();
    assert_eq!(sum("gen_ai.client.inference.time_to_first_chunk"), 2.0);
    // One in each attempt, and none from one to the other.
    assert_eq!(sum("gen_ai.client.inference.time_per_output_chunk"), 2.0);
}

#[tokio::test]
async fn durations_say_how_a_call_has_failed() {
    let world = World::new();
    let refuses = Tool::function("refuses", "Refuses.", |_: Value| ToolResponse::error("no"));
    let model = ScriptedModel::new([
        Turn::tool("refuses", json!({})),
        Turn::error(Error::new(ErrorKind::Overloaded, "busy")),
    ]);
    let clerk = Agent::builder(model)
        .name("clerk")
        .tool(refuses)
        .build()
        .unwrap();
    let office = Agent::sequential("office")
        .agent(clerk)
        .global_callbacks(world.telemetry());
    office.build().unwrap().run("?").await.unwrap_err();
    let metrics = world.received().metrics;
    for (metric, error) in [
        ("gen_ai.execute_tool.duration", "tool"),
        ("gen_ai.invoke_agent.duration", "overloaded"),
        ("gen_ai.invoke_workflow.duration", "overloaded"),
    ] {
        assert_eq!(
            metrics.counts(metric, "error.type"),
            [(error.to_owned(), 1)].into(),
            "{metric}"
        );
    }
    let calls = metrics.counts("gen_ai.invoke_agent.inference_calls", "error.type");
    assert_eq!(calls, [(String::new(), 1)].into());
}

/// What is inside of what an agent has for its model is seen by no callback around it.
#[tokio::test]
async fn tokens_of_answers_that_were_refused_inside_the_model_are_counted() {
    let world = World::new();
    let model = |turn: Turn| ScriptedModel::new([turn]);
    let check = after_model(|_, _| Err::<(), _>(Error::new(ErrorKind::Provider, "no answer")));
    let first = check.layer(model(Turn::from_text("as an AI").usage(usage(10, 4))));
    let second = model(Turn::from_text("Paris").usage(usage(20, 7)));
    let either = service_fn(move |request: ModelRequest| {
        let first = first.clone();
        let second = second.clone();
        async move {
            match first.oneshot(request.clone()).await {
                Ok(response) => Ok(response),
                Err(_) => second.oneshot(request).await,
            }
        }
    });
    let agent = Agent::builder(either)
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    let response = agent.run("?").await.unwrap();
    assert_eq!(
        (response.text(), response.usage().total()),
        ("Paris".into(), 41)
    );
    assert_eq!(totals(&world.received().metrics), [30, 11, 2]);
}
