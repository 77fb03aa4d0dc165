//! `adaptive_concurrency`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::service_fn;
use tower_agent::call::CallKind;
use tower_agent::message::ToolCall;
use tower_agent::model::{BoxModel, ModelRequest, ModelResponse, ModelService};
use tower_agent::{Agent, AgentBuilder, Error, Request, Result, Role, RunContext, Tool};
use tower_agent_middleware::adaptive_concurrency::AdaptiveConcurrencyLayer;
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};
use tower_layer::Layer;

use super::mock::{Mock, refused, timed};
use super::watch::ms;
use test_support::call;

async fn ask<M: ModelService>(model: &M) -> Result<ModelResponse> {
    call(model.clone(), ModelRequest::default()).await
}

/// A server that bears some calls at a time, and refuses those above.
#[derive(Clone, Debug, Default)]
struct Server {
    bears: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    calls: Arc<AtomicUsize>,
    refusals: Arc<AtomicUsize>,
}

impl Server {
    fn bearing(calls: usize) -> Self {
        let server = Self::default();
        server.bears.store(calls, Ordering::SeqCst);
        server
    }

    fn model(&self) -> BoxModel {
        let server = self.clone();
        BoxModel::new(service_fn(move |_: ModelRequest| {
            let server = server.clone();
            async move {
                server.calls.fetch_add(1, Ordering::SeqCst);
                let open = server.open.fetch_add(1, Ordering::SeqCst) + 1;
                let is_refused = open > server.bears.load(Ordering::SeqCst);
                sleep(if is_refused { ms(5) } else { ms(200) }).await;
                server.open.fetch_sub(1, Ordering::SeqCst);
                if is_refused {
                    server.refusals.fetch_add(1, Ordering::SeqCst);
                    return Err(refused());
                }
                Ok(ModelResponse::from_text("fine"))
            }
        }))
    }

    /// Returns the share of refusals, and starts to count anew.
    fn refused(&self) -> f64 {
        let refusals = self.refusals.swap(0, Ordering::SeqCst);
        refusals as f64 / self.calls.swap(0, Ordering::SeqCst) as f64
    }
}

/// Keeps so many tasks busy for a time, and returns the calls that succeeded.
async fn work<M: ModelService>(model: &M, tasks: usize, time: Duration) -> usize {
    let end = Instant::now() + time;
    let all = (0..tasks).map(|_| async {
        let mut succeeded = 0;
        while Instant::now() < end {
            if ask(model).await.is_ok() {
                succeeded += 1;
            }
        }
        succeeded
    });
    join_all(all).await.into_iter().sum()
}

#[tokio::test(start_paused = true)]
async fn it_finds_a_hidden_limit_and_follows_when_that_halves_and_doubles() {
    let server = Server::bearing(40);
    let layer = AdaptiveConcurrencyLayer::new();
    let model = layer.layer(server.model());
    let minute = Duration::from_secs(60);
    for (bears, name) in [(40, "at first"), (20, "halved"), (40, "doubled")] {
        server.bears.store(bears, Ordering::SeqCst);
        let done = work(&model, 100, minute).await;
        let refused = server.refused();
        let possible = bears * 5 * 60;
        println!("{name}: {done} of {possible}, {refused} refused");
        assert!(refused < 0.02, "{name}: {refused}");
        assert!(
            done as f64 > 0.75 * possible as f64,
            "{name}: {done} of {possible}"
        );
        assert!((bears / 2..=bears + 1).contains(&layer.limit("")), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_grows_only_while_the_room_is_used() {
    let model = Mock::new("model", ms(100));
    let layer = AdaptiveConcurrencyLayer::new();
    let limited = layer.layer(model.model());
    work(&limited, 2, Duration::from_secs(60)).await;
    assert_eq!(layer.limit(""), 4);
    work(&limited, 50, Duration::from_secs(10)).await;
    assert!(layer.limit("") > 40);
    let layer = AdaptiveConcurrencyLayer::new().most(16);
    work(&layer.layer(model.model()), 50, Duration::from_secs(10)).await;
    assert_eq!(layer.limit(""), 16);
}

#[tokio::test(start_paused = true)]
async fn a_longer_wait_for_the_first_output_makes_it_fall() {
    // One that takes every call, and begins later the more of them there are.
    let open = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let seen = most.clone();
    let model = service_fn(move |request: ModelRequest| {
        let [open, most] = [open.clone(), most.clone()];
        async move {
            let now = open.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            let first = ms(100 * (1 + (now as u64).saturating_sub(10)));
            let mock = Mock::new("model", first).words(5, ms(100));
            let result = call(mock.model(), request).await;
            open.fetch_sub(1, Ordering::SeqCst);
            result
        }
    });
    let layer = AdaptiveConcurrencyLayer::new();
    let limited = layer.layer(model);
    work(&limited, 200, Duration::from_secs(20)).await;
    // Doubling at first, it went too far. From here on it goes by what it knows.
    seen.store(0, Ordering::SeqCst);
    work(&limited, 200, Duration::from_secs(200)).await;
    let limit = layer.limit("");
    assert!((6..20).contains(&limit), "{limit}");
    let most = seen.load(Ordering::SeqCst);
    assert!(most < 25, "{most}");

    let careless = AdaptiveConcurrencyLayer::new().tolerance(f64::INFINITY);
    work(
        &careless.layer(Mock::new("model", ms(100)).model()),
        200,
        Duration::from_secs(20),
    )
    .await;
    assert!(careless.limit("") >= 200);
}

#[tokio::test(start_paused = true)]
async fn calls_wait_in_turn_and_one_that_is_dropped_leaves_the_queue() {
    let mock = Mock::new("model", ms(100));
    let layer = AdaptiveConcurrencyLayer::new().initial(1).most(1);
    let model = layer.layer(mock.model());
    let mut calls: Vec<_> = (0..4).map(|_| Box::pin(timed(ask(&model)))).collect();
    for call in &mut calls {
        assert!(call.as_mut().now_or_never().is_none());
    }
    // The second and the one that runs.
    drop(calls.remove(1));
    drop(calls.remove(0));
    let times = join_all(calls).await;
    let times: Vec<_> = times.into_iter().map(|(time, _)| time).collect();
    assert_eq!(times, [ms(100), ms(200)]);
    assert_eq!(mock.counts.most_open(), 1);
    assert_eq!(mock.counts.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_counts_once_for_the_calls_that_ran_with_it() {
    let layer = AdaptiveConcurrencyLayer::new().initial(100);
    let model = layer.layer(
        Mock::new("model", ms(10))
            .failing(|_| true, refused())
            .model(),
    );
    join_all((0..100).map(|_| ask(&model))).await;
    assert_eq!(layer.limit(""), 70);
    // It never comes to nothing.
    for _ in 0..50 {
        ask(&model).await.unwrap_err();
    }
    assert_eq!(layer.limit(""), 1);
}

#[tokio::test(start_paused = true)]
async fn errors_that_say_nothing_about_the_load_leave_it_as_it_is() {
    let layer = AdaptiveConcurrencyLayer::new().initial(10);
    let wrong = Error::new(tower_agent::ErrorKind::InvalidRequest, "no such field");
    let model = layer.layer(Mock::new("model", ms(10)).failing(|_| true, wrong).model());
    work(&model, 50, Duration::from_secs(5)).await;
    let hangs = layer.layer(ScriptedModel::always(Turn::pending()));
    for _ in 0..50 {
        assert!(tokio::time::timeout(ms(10), ask(&hangs)).await.is_err());
    }
    assert_eq!(layer.limit(""), 10);
}

#[tokio::test(start_paused = true)]
async fn each_key_has_a_limit_of_its_own() {
    #[derive(Clone)]
    struct Region(&'static str);
    let layer = AdaptiveConcurrencyLayer::new()
        .initial(8)
        .by(|run: &RunContext| Ok(run.extension::<Region>()?.0.to_owned()));
    let model = layer.layer(service_fn(|request: ModelRequest| async move {
        sleep(ms(10)).await;
        if request.context().extension::<Region>()?.0 == "full" {
            return Err(refused());
        }
        Ok::<_, Error>(ModelResponse::from_text("fine"))
    }));
    for region in ["full", "free"] {
        let context = tower_agent::AgentRequest::new("?").with_extension(Region(region));
        let request = ModelRequest::default().with_context(context.context().clone());
        let _ = call(model.clone(), request).await;
    }
    assert_eq!([layer.limit("full"), layer.limit("free")], [5, 8]);
    ask(&model).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_stream_holds_its_place_to_its_end_and_any_call_can_be_limited() {
    let mock = Mock::new("model", ms(10)).words(10, ms(100));
    let layer = AdaptiveConcurrencyLayer::new().initial(2).most(2);
    let agent = tower_agent::Agent::builder(mock.model()).build().unwrap();
    let agent = layer.layer(agent);
    let runs = (0..6).map(|_| async {
        let mut stream = tower_agent::RunStream::new(agent.clone(), "?".into());
        while futures::StreamExt::next(&mut stream).await.is_some() {}
        stream.response().await
    });
    let (time, results) = timed(join_all(runs)).await;
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(time, 3 * ms(910));
    assert_eq!(mock.counts.most_open(), 2);
    assert_eq!(
        <tower_agent::AgentRequest as Request>::CALL,
        CallKind::Agent
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_is_ready_when_it_is_called() {
    let probe = ProbeLayer::new().pending_polls(2);
    let layer = AdaptiveConcurrencyLayer::new().initial(2).most(2);
    let model = layer.layer(probe.layer(Mock::new("model", ms(10)).model()));
    join_all((0..10).map(|_| ask(&model))).await;
    assert_eq!(probe.violations(), 0);
    assert_eq!(probe.max_in_flight(), 2);
}

/// An agent that calls a tool once, which takes a while.
fn calls_once(name: &str, tool: Tool) -> AgentBuilder {
    let called = tool.declaration().name().to_owned();
    let turn = Turn::function(move |request: &ModelRequest| {
        let is_answered = request.messages().iter().any(|m| m.role() == Role::Tool);
        Ok(if is_answered {
            ModelResponse::from_text("done")
        } else {
            let call = ToolCall::new("1", &*called, json!({ "request": "go" }));
            ModelResponse::from_tool_calls([call])
        })
    });
    let model = ScriptedModel::always(turn.latency(ms(5)));
    Agent::builder(model).name(name).tool(tool)
}

/// With as many runs as there are places, all of them wait inside a call that has one.
#[tokio::test(start_paused = true)]
async fn calls_inside_one_that_has_a_place_do_not_wait_for_it() {
    type Limits = fn(AgentBuilder, &AdaptiveConcurrencyLayer) -> AgentBuilder;
    let around: [Limits; 3] = [
        |agent, limit| agent.tool_layer(limit.clone()),
        |agent, limit| agent.agent_layer(limit.clone()),
        |agent, limit| {
            let agent = agent.agent_layer(limit.clone()).model_layer(limit.clone());
            agent.tool_layer(limit.clone())
        },
    ];
    for limited in around {
        let limit = AdaptiveConcurrencyLayer::new().initial(2).most(2);
        let most = Arc::new(AtomicUsize::new(0));
        let work = Tool::function("work", "", {
            let open = Arc::new(AtomicUsize::new(0));
            let most = most.clone();
            move |_: Value| {
                let open = open.clone();
                let most = most.clone();
                async move {
                    let now = open.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    sleep(ms(10)).await;
                    open.fetch_sub(1, Ordering::SeqCst);
                    "done"
                }
            }
        });
        let inner = limited(calls_once("inner", work), &limit).build().unwrap();
        let outer = calls_once("outer", inner.into_tool("Works."));
        let outer = limited(outer, &limit).build().unwrap();

        let runs = join_all((0..6).map(|_| outer.run("go")));
        let runs = tokio::time::timeout(Duration::from_secs(60), runs);

        let runs = runs.await.expect("they wait for themselves");
        assert!(runs.iter().all(Result::is_ok));
        assert_eq!(
            most.load(Ordering::SeqCst),
            2,
            "other runs wait all the same"
        );
    }
}
