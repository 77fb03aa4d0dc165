//! Every layer that believes a number of a provider, with every number that a provider might send.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, advance};
use tower::{ServiceBuilder, service_fn};
use tower_agent::message::Metadata;
use tower_agent::model::BoxModel;
use tower_agent::stream::{Attempt, Delta, DeltaSender, Piece};
use tower_agent::{Agent, Error, ErrorKind, ModelRequest, ModelResponse, Result, Usage};
use tower_agent_middleware::adaptive_concurrency::AdaptiveConcurrencyLayer;
use tower_agent_middleware::budget::{
    Account, Budget, Limits, ModelPrice, PriceTable, UnknownModel,
};
use tower_agent_middleware::circuit_breaker::CircuitBreakerLayer;
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::hedge::HedgeLayer;
use tower_agent_middleware::pool::Pool;
use tower_agent_middleware::rate_limit::RateLimitLayer;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_layer::Layer;

use test_support::traces::Traces;
use test_support::{call, stream};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// Nothing that a provider says may keep calls away for longer.
const LONGEST: Duration = HOUR;

/// The time between two tries.
const STEP: Duration = Duration::from_secs(300);

/// What one answer of a provider says.
type Said = Result<ModelResponse>;

fn answer() -> ModelResponse {
    ModelResponse::from_text("fine").with_usage(Usage::new(10, 10))
}

fn waits() -> [Duration; 7] {
    [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_secs(61),
        Duration::from_secs(86_400),
        // A date in 2999.
        Duration::from_secs(31_000_000_000),
        Duration::from_secs(10_000_000_000_000_000),
        Duration::MAX,
    ]
}

fn refusals() -> impl Iterator<Item = (String, Said)> {
    let kinds = [
        ErrorKind::RateLimited,
        ErrorKind::Overloaded,
        ErrorKind::Provider,
    ];
    kinds.into_iter().flat_map(|kind| {
        waits().map(|wait| {
            let error = Error::new(kind, "come again").with_retry_after(wait);
            (format!("{kind:?} for {wait:?}"), Err(error))
        })
    })
}

fn usages() -> impl Iterator<Item = (String, Said)> {
    let counts = [0, 1, 200_000_000, 1 << 62, u64::MAX];
    let every = |count| {
        let mut part = Usage::new(10, 10);
        part.cached_input_tokens = count;
        part.cache_write_tokens = count;
        part.reasoning_tokens = count;
        [
            Usage::new(count, 0),
            Usage::new(0, count),
            Usage::new(count, count),
            part,
        ]
    };
    counts.into_iter().flat_map(every).map(|usage| {
        let mut metadata = Metadata::default();
        metadata.long_cache_write_tokens = Some(usage.cache_write_tokens);
        metadata.cost = Some(f64::NAN);
        let response = answer().with_usage(usage).with_metadata(metadata);
        (format!("{usage:?}"), Ok(response))
    })
}

/// The reports about limits, of answers and of refusals.
fn reports() -> impl Iterator<Item = (String, Said)> {
    let numbers = ["", "0", "-1", "1", "18446744073709551615"];
    let resets = [
        "",
        "0",
        "-1",
        "NaN",
        "inf",
        "0.000000001",
        "1e19",
        "10000000000000000s",
        "18446744073709551615h",
        "2999-01-01T00:00:00Z",
        "65535-12-31T23:59:59Z",
        "1970-01-01T00:00:00Z",
        "2026-01-01T NaN:NaN:NaNZ",
    ];
    let resources = ["requests", "tokens"];
    resources.into_iter().flat_map(move |resource| {
        numbers.into_iter().flat_map(move |number| {
            resets.into_iter().flat_map(move |reset| {
                // Used up to the last one, and as odd as the limit.
                ["0", number].into_iter().flat_map(move |remaining| {
                    let mut metadata = Metadata::default();
                    for (field, value) in [
                        ("limit", number),
                        ("remaining", remaining),
                        ("reset", reset),
                    ] {
                        let name = format!("x-ratelimit-{field}-{resource}");
                        metadata.rate_limits.insert(name, value.to_owned());
                    }
                    let name = format!("{:?}", metadata.rate_limits);
                    let refusal = Error::new(ErrorKind::Provider, "broken");
                    [
                        (name.clone(), Ok(answer().with_metadata(metadata.clone()))),
                        (
                            format!("error {name}"),
                            Err(refusal.with_metadata(metadata)),
                        ),
                    ]
                })
            })
        })
    })
}

/// A model that says this twice, and then works.
fn saying(said: &Said) -> (BoxModel, Arc<AtomicUsize>) {
    let said = said.clone();
    let calls = Arc::<AtomicUsize>::default();
    let reached = calls.clone();
    let model = service_fn(move |_: ModelRequest| {
        let is_odd = calls.fetch_add(1, Ordering::SeqCst) < 2;
        let said = if is_odd { said.clone() } else { Ok(answer()) };
        async move { said }
    });
    (BoxModel::new(model), reached)
}

fn rate_limit() -> RateLimitLayer {
    RateLimitLayer::new()
        .requests(1_000, MINUTE)
        .tokens(1_000_000, MINUTE)
        .max_wait(Duration::ZERO)
}

fn plain(model: BoxModel) -> Agent {
    Agent::builder(model).build().unwrap()
}

fn budgeted(model: BoxModel, limits: Limits) -> Agent {
    let account = Account::new(limits);
    let builder = Agent::builder(model).global_callbacks(Budget::of(account));
    builder.build().unwrap()
}

/// Puts layers around a model.
type Build = fn(BoxModel) -> Agent;

/// The layers that believe a number, alone and in stacks.
const LAYERS: [(&str, Build); 14] = [
    ("nothing", plain),
    ("rate limit", |model| {
        plain(BoxModel::new(rate_limit().layer(model)))
    }),
    ("rate limit that waits", |model| {
        plain(BoxModel::new(rate_limit().max_wait(MINUTE).layer(model)))
    }),
    ("rate limit by the day", |model| {
        let layer = RateLimitLayer::new().tokens(1_000_000_000, HOUR * 24);
        plain(BoxModel::new(layer.max_wait(Duration::ZERO).layer(model)))
    }),
    ("rate limit without limits of its own", |model| {
        let layer = RateLimitLayer::new().max_wait(Duration::ZERO);
        plain(BoxModel::new(layer.layer(model)))
    }),
    ("rate limit by user, in turns", |model| {
        let layer = rate_limit().by(|_| Ok("ann".to_owned()));
        let layer = layer.fair_by(|_| Ok("ann".to_owned()));
        plain(BoxModel::new(layer.layer(model)))
    }),
    ("circuit breaker", |model| {
        let layer = CircuitBreakerLayer::new().failures(1).pause(MINUTE);
        plain(BoxModel::new(layer.layer(model)))
    }),
    ("pool", |model| {
        let pool = Pool::new([("a", model.clone()), ("b", model)]);
        plain(BoxModel::new(pool.failures(1)))
    }),
    ("adaptive concurrency", |model| {
        plain(BoxModel::new(AdaptiveConcurrencyLayer::new().layer(model)))
    }),
    ("retry", |model| {
        plain(BoxModel::new(CallRetryLayer::new().layer(model)))
    }),
    ("retry around a breaker around a rate limit", |model| {
        let layers = ServiceBuilder::new()
            .layer(CallRetryLayer::new())
            .layer(CircuitBreakerLayer::new().failures(1).pause(MINUTE))
            .layer(rate_limit());
        plain(BoxModel::new(layers.service(model)))
    }),
    ("fallback and hedge", |model| {
        let hedged = HedgeLayer::new(MINUTE).layer(model.clone());
        plain(BoxModel::new(Fallback::new(hedged).or(model)))
    }),
    ("budget of tokens", |model| {
        budgeted(model, Limits::new().tokens(500_000_000))
    }),
    ("budget of cost", |model| {
        let mut price = ModelPrice::new(3e-6, 15e-6);
        price.cache_read = Some(3e-7);
        price.reasoning = Some(15e-6);
        let unknown = UnknownModel::Assume(price);
        budgeted(
            model,
            Limits::new().cost_at(10_000.0, PriceTable::new(), unknown),
        )
    }),
];

/// Returns how long it takes until a call reaches the model.
async fn closed_for(agent: &Agent, reached: &AtomicUsize) -> Duration {
    let before = reached.load(Ordering::SeqCst);
    let start = Instant::now();
    loop {
        // Whether it succeeds is what the model says.
        let _ = agent.run("hello").await;
        if reached.load(Ordering::SeqCst) > before {
            return start.elapsed();
        }
        // Once more than the longest time says enough.
        if start.elapsed() > LONGEST * 2 {
            return Duration::MAX;
        }
        advance(STEP).await;
    }
}

async fn assert_bounded(said: impl Iterator<Item = (String, Said)>) {
    let said: Vec<_> = said.collect();
    let mut broken = Vec::new();
    for (layer, build) in LAYERS {
        for (name, said) in &said {
            let (model, reached) = saying(said);
            let agent = build(model);
            // The first two are told the odd thing, and the others show what that leaves.
            for number in 1..=4 {
                let time = closed_for(&agent, &reached).await;
                // It may also have waited in the layer, and have come a little too early.
                if time > LONGEST + MINUTE + STEP {
                    broken.push(format!("{layer}: call {number} after {name}: {time:?}"));
                    break;
                }
            }
        }
    }
    assert!(
        broken.is_empty(),
        "{}:\n{}",
        broken.len(),
        broken.join("\n")
    );
}

#[tokio::test(start_paused = true)]
async fn no_wait_that_a_provider_asks_for_closes_a_layer_for_ever() {
    assert_bounded(refusals()).await;
}

#[tokio::test(start_paused = true)]
async fn no_usage_that_a_provider_states_closes_a_layer_for_ever() {
    assert_bounded(usages()).await;
}

#[tokio::test(start_paused = true)]
async fn no_limit_that_a_provider_reports_closes_a_layer_for_ever() {
    assert_bounded(reports()).await;
}

#[tokio::test(start_paused = true)]
async fn the_usage_of_attempts_that_are_cut_does_not_overflow() {
    let model = service_fn(|request: ModelRequest| async move {
        let sink = request.delta_sender();
        for _ in 0..2 {
            let mut attempt = sink.map_or_else(Attempt::unseen, DeltaSender::open);
            attempt.send(Delta::Text("so".to_owned())).await?;
            attempt
                .send(Piece::Usage(Usage::new(u64::MAX, u64::MAX)))
                .await?;
        }
        Err::<ModelResponse, _>(Error::new(ErrorKind::Timeout, "too late"))
    });
    let model = rate_limit().layer(model);
    let failed = stream(model.clone(), ModelRequest::default()).await.0;
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Timeout);

    // What was stated counts for no more than the text: there is room for the next call at once.
    let failed = call(model, ModelRequest::default()).await;
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Timeout);
}

/// Returns what a layer logs about one odd answer.
async fn told(build: Build, said: Said) -> Vec<String> {
    let traces = Traces::default();
    let _guard = tracing::subscriber::set_default(traces.clone());
    let (model, reached) = saying(&said);
    let agent = build(model);
    for _ in 0..2 {
        closed_for(&agent, &reached).await;
    }
    traces.take()
}

#[tokio::test(start_paused = true)]
async fn what_is_not_believed_is_told() {
    let refused = Error::new(ErrorKind::RateLimited, "come again");
    let refused = || Err(refused.clone().with_retry_after(Duration::MAX));
    let usage = || Ok(answer().with_usage(Usage::new(u64::MAX, 1)));
    let mut metadata = Metadata::default();
    for (field, value) in [("limit", "1"), ("remaining", "0"), ("reset", "1e19")] {
        let name = format!("x-ratelimit-{field}-requests");
        metadata.rate_limits.insert(name, value.to_owned());
    }
    let report = || Ok(answer().with_metadata(metadata.clone()));
    let large = || Ok(answer().with_usage(Usage::new(90_000_000, 0)));
    let asked = "a provider asked for a very long wait";
    let stated = "a provider stated more tokens";
    let table: [(&str, Said, &str); 7] = [
        ("rate limit", refused(), asked),
        ("circuit breaker", refused(), asked),
        ("pool", refused(), asked),
        ("rate limit", usage(), stated),
        ("budget of tokens", usage(), stated),
        ("rate limit", report(), "its report is forgotten"),
        ("rate limit", large(), "the limit forgets the rest"),
    ];
    for (layer, said, expected) in table {
        let (_, build) = LAYERS.iter().find(|(name, _)| *name == layer).unwrap();
        let lines = told(*build, said).await;
        let is_told = lines.iter().any(|line| line.contains(expected));
        assert!(is_told, "{layer}: {expected}: {lines:?}");
    }
}
