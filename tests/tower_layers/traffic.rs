//! The layers for traffic of `tower-agent-middleware` beside each of tower's own, in both orders.

use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use tower::balance::p2c::Balance;
use tower::buffer::{Buffer, BufferLayer};
use tower::discover::ServiceList;
use tower::filter::FilterLayer;
use tower::hedge::Hedge;
use tower::limit::{ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer, RateLimitLayer};
use tower::load::{CompleteOnResponse, PendingRequests};
use tower::load_shed::LoadShedLayer;
use tower::retry::RetryLayer;
use tower::steer::Steer;
use tower::timeout::TimeoutLayer;
use tower::util::{MapErrLayer, MapRequestLayer, MapResponseLayer};
use tower::{ServiceBuilder, ServiceExt};
use tower_agent::agent::BoxAgent;
use tower_agent::model::{BoxModel, ModelService};
use tower_agent::{Agent, Error, ErrorKind, ModelRequest, ModelResponse, RunStream};
use tower_agent_middleware::adaptive_concurrency::AdaptiveConcurrencyLayer;
use tower_agent_middleware::circuit_breaker::CircuitBreakerLayer;
use tower_agent_middleware::hedge::HedgeLayer;
use tower_agent_middleware::pool::Pool;
use tower_agent_middleware::router::Router;
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};
use tower_layer::Layer;

use crate::retries::Again;
use crate::{WAYS, busy, secs};
use test_support::runs::run;
use test_support::transcript::{left, said};

/// A layer of any type.
type Around = fn(BoxModel) -> BoxModel;

fn with<L>(layer: L, model: BoxModel) -> BoxModel
where
    L: Layer<BoxModel, Service: ModelService>,
{
    BoxModel::new(layer.layer(model))
}

const OURS: [(&str, Around); 5] = [
    ("Pool", |model| {
        BoxModel::new(Pool::new([("one", model.clone()), ("two", model)]))
    }),
    ("HedgeLayer", |model| with(HedgeLayer::new(secs(3)), model)),
    ("Router", |model| {
        let router = Router::new(|_: &ModelRequest| Ok("only"));
        BoxModel::new(router.route("only", model))
    }),
    ("AdaptiveConcurrencyLayer", |model| {
        with(AdaptiveConcurrencyLayer::new().initial(1).most(1), model)
    }),
    ("CircuitBreakerLayer", |model| {
        with(CircuitBreakerLayer::new(), model)
    }),
];

/// Never makes a second attempt, which the script would not have.
#[derive(Clone)]
struct Patient;

impl<R: Clone> tower::hedge::Policy<R> for Patient {
    fn clone_request(&self, request: &R) -> Option<R> {
        Some(request.clone())
    }

    fn can_retry(&self, _: &R) -> bool {
        true
    }
}

const TOWERS: [(&str, Around); 15] = [
    ("TimeoutLayer", |model| {
        with(TimeoutLayer::new(secs(60)), model)
    }),
    ("RetryLayer", |model| with(RetryLayer::new(Again(1)), model)),
    ("ConcurrencyLimitLayer", |model| {
        with(ConcurrencyLimitLayer::new(1), model)
    }),
    ("GlobalConcurrencyLimitLayer", |model| {
        with(GlobalConcurrencyLimitLayer::new(1), model)
    }),
    ("LoadShedLayer over a limit", |model| {
        let layers = ServiceBuilder::new().layer(LoadShedLayer::new());
        with(
            layers.layer(ConcurrencyLimitLayer::new(8)).into_inner(),
            model,
        )
    }),
    ("LoadShedLayer", |model| with(LoadShedLayer::new(), model)),
    ("BufferLayer", |model| {
        with(BufferLayer::<ModelRequest>::new(8), model)
    }),
    ("RateLimitLayer in a buffer", |model| {
        let layers = ServiceBuilder::new().layer(BufferLayer::<ModelRequest>::new(8));
        with(
            layers.layer(RateLimitLayer::new(10, secs(1))).into_inner(),
            model,
        )
    }),
    ("Hedge in a buffer", |model| {
        let hedge = Hedge::new_with_mock_latencies(model, Patient, 1, 0.9, secs(10), &[50_000]);
        BoxModel::new(Buffer::new(hedge, 8))
    }),
    ("Balance in a buffer", |model| {
        let counted = PendingRequests::new(model, CompleteOnResponse::default());
        let list = ServiceList::new::<ModelRequest>([counted]);
        BoxModel::new(Buffer::new(Balance::new(list), 8))
    }),
    ("Steer", |model| {
        let pick = |_: &ModelRequest, _: &[BoxModel]| 0;
        BoxModel::new(Steer::new([model], pick))
    }),
    ("FilterLayer", |model| {
        with(FilterLayer::new(Ok::<ModelRequest, Error>), model)
    }),
    ("MapRequestLayer", |model| {
        with(MapRequestLayer::new(|request: ModelRequest| request), model)
    }),
    ("MapResponseLayer", |model| {
        with(
            MapResponseLayer::new(|response: ModelResponse| response),
            model,
        )
    }),
    ("MapErrLayer", |model| {
        with(MapErrLayer::new(|error: Error| error), model)
    }),
];

/// Every pair, in both orders.
async fn each_pair(check: impl Fn(String, Around, Around, bool) -> BoxFuture<'static, ()>) {
    for (name, ours) in OURS {
        for (towers_name, towers) in TOWERS {
            for streamed in WAYS {
                check(
                    format!("{towers_name} around {name}"),
                    towers,
                    ours,
                    streamed,
                )
                .await;
                check(
                    format!("{name} around {towers_name}"),
                    ours,
                    towers,
                    streamed,
                )
                .await;
            }
        }
    }
}

fn agent(outside: Around, inside: Around, model: ScriptedModel, probe: &ProbeLayer) -> BoxAgent {
    let model = BoxModel::new(probe.layer(model.chunk_size(1)));
    BoxAgent::new(Agent::builder(outside(inside(model))).build().unwrap())
}

#[tokio::test(start_paused = true)]
async fn an_answer_passes_each_pair_and_an_error_keeps_its_kind() {
    each_pair(|pair, outside, inside, streamed| {
        Box::pin(async move {
            // Shedding refuses a call if the model is not ready at once.
            let polls = usize::from(!pair.contains("LoadShed"));
            let probe = ProbeLayer::new().pending_polls(polls);
            let model = ScriptedModel::new([
                Turn::from_text("one").latency(secs(1)),
                Turn::from_text("two").failing_after(2, Error::new(ErrorKind::Auth, "no key")),
                Turn::from_text("three"),
            ]);
            let agent = agent(outside, inside, model, &probe);
            for expected in [Ok("one"), Err(ErrorKind::Auth), Ok("three")] {
                let result = run(&agent, streamed).await;
                let result = result.map(|response| response.text());
                let result = result.map_err(|error| error.kind());
                assert_eq!(result, expected.map(str::to_owned), "{pair}");
            }
            assert_eq!(probe.violations(), 0, "{pair}");
            assert_eq!(probe.in_flight(), 0, "{pair}");
        })
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_behind_each_pair_leaves_nothing_open() {
    each_pair(|pair, outside, inside, streamed| {
        Box::pin(async move {
            let probe = ProbeLayer::new();
            let model = ScriptedModel::new([
                Turn::from_text("half of it").hanging_after(3),
                Turn::from_text("whole"),
            ]);
            let agent = agent(outside, inside, model, &probe);
            let cut = Duration::from_secs(1);
            if streamed {
                let mut stream = RunStream::new(agent.clone(), "?".into());
                let reading = async { while stream.next().await.is_some() {} };
                assert!(tokio::time::timeout(cut, reading).await.is_err(), "{pair}");
            } else {
                let run = agent.clone().oneshot("?".into());
                assert!(tokio::time::timeout(cut, run).await.is_err(), "{pair}");
            }
            // The worker of a buffer lets go of what was dropped.
            for _ in 0..32 {
                tokio::task::yield_now().await;
            }
            assert_eq!(probe.in_flight(), 0, "{pair}");
            // A limit of one has its place again.
            let answer = run(&agent, streamed).await.unwrap();
            assert_eq!(answer.text(), "whole", "{pair}");
        })
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_reader_of_a_stream_ends_with_the_answer_of_a_retry_around_each_of_ours() {
    for (name, ours) in OURS {
        let probe = ProbeLayer::new();
        let model = ScriptedModel::new([
            Turn::from_text("half of it").failing_after(4, busy()),
            Turn::from_text("all of it"),
        ]);
        let retry: Around = |model| with(RetryLayer::new(Again(1)), model);
        let agent = agent(retry, ours, model, &probe);
        let mut stream = RunStream::new(agent, "?".into());
        let events: Vec<_> = stream.by_ref().collect().await;
        let response = stream.response().await.unwrap();
        assert_eq!(response.text(), "all of it", "{name}");
        assert_eq!(left(&events), said(response.new_messages()), "{name}");
    }
}
