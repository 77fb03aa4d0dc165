//! One limit, several keys.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use tokio::time::{Instant, sleep};
use tower::service_fn;
use tower_agent::model::ModelService;
use tower_agent::{
    Agent, AgentRequest, Error, ErrorKind, ModelRequest, ModelResponse, Result, RunContext, Usage,
};
use tower_agent_middleware::rate_limit::RateLimitLayer;
use tower_agent_test::ScriptedModel;
use tower_layer::Layer;

use super::{MINUTE, SECOND, using};

struct Tenant(&'static str);

fn tenant(run: &RunContext) -> Result<String> {
    Ok(run.extension::<Tenant>()?.0.to_owned())
}

/// A model whose calls take 100 ms and use all that they reserve.
fn model() -> impl ModelService {
    service_fn(|request: ModelRequest| async move {
        sleep(Duration::from_millis(100)).await;
        let tokens = request.settings().max_tokens.unwrap().into();
        let usage = Usage::new(0, tokens);
        Ok::<_, Error>(ModelResponse::from_text("fine").with_usage(usage))
    })
}

#[derive(Default)]
struct Seen {
    tokens: f64,
    longest_wait: Duration,
}

fn note(seen: &mut BTreeMap<&'static str, Seen>, name: &'static str, tokens: u32, wait: Duration) {
    let of_tenant = seen.entry(name).or_default();
    of_tenant.tokens += f64::from(tokens);
    of_tenant.longest_wait = of_tenant.longest_wait.max(wait);
}

/// Runs tasks of tenants for a while: the name, the number of tasks, the tokens of a call and the
/// pause between calls.
async fn compete(
    layer: RateLimitLayer,
    tenants: &[(&'static str, usize, u32, Duration)],
) -> BTreeMap<&'static str, Seen> {
    let model = layer.max_wait(Duration::MAX).layer(model());
    let seen = Arc::new(Mutex::new(BTreeMap::<_, Seen>::new()));
    let mut tasks = Vec::new();
    for (name, count, tokens, pause) in tenants.iter().copied() {
        for _ in 0..count {
            let mut settings = tower_agent::Settings::default();
            settings.max_tokens = Some(tokens);
            let agent = Agent::builder(model.clone())
                .settings(settings)
                .build()
                .unwrap();
            let seen = seen.clone();
            tasks.push(tokio::spawn(async move {
                loop {
                    let start = Instant::now();
                    let request = AgentRequest::new("").with_extension(Tenant(name));
                    agent.run(request).await.unwrap();
                    note(&mut seen.lock().unwrap(), name, tokens, start.elapsed());
                    sleep(pause).await;
                }
            }));
        }
    }
    sleep(MINUTE * 2).await;
    for task in tasks {
        task.abort();
    }
    std::mem::take(&mut *seen.lock().unwrap())
}

/// Jain's index: 1 if all are equal, and 1/n if one has everything.
fn jain(seen: &BTreeMap<&str, Seen>) -> f64 {
    let sum: f64 = seen.values().map(|tenant| tenant.tokens).sum();
    let squares: f64 = seen.values().map(|tenant| tenant.tokens.powi(2)).sum();
    sum.powi(2) / (seen.len() as f64 * squares)
}

fn limit() -> RateLimitLayer {
    RateLimitLayer::new().tokens(60_000, MINUTE)
}

#[tokio::test(start_paused = true)]
async fn a_heavy_and_a_light_tenant_get_as_many_tokens() {
    let tenants = [
        ("heavy", 60, 1_000, Duration::ZERO),
        ("light", 4, 100, Duration::ZERO),
    ];
    let seen = compete(limit().fair_by(tenant), &tenants).await;
    assert!(jain(&seen) >= 0.95, "{}", jain(&seen));

    // The order of arrival alone is not fair.
    let seen = compete(limit(), &tenants).await;
    assert!(jain(&seen) < 0.7, "{}", jain(&seen));
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_needs_less_than_its_share_hardly_waits() {
    let heavy = ("heavy", 60, 1_000, Duration::ZERO);
    let light = ("light", 1, 100, SECOND * 2);
    let seen = compete(limit().fair_by(tenant), &[heavy, light]).await;
    let wait = seen["light"].longest_wait;
    assert!(wait < SECOND * 3, "{wait:?}");
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_was_away_has_saved_nothing_up() {
    // One that calls now and then does not push the others aside for what it has not used.
    let tenants = [
        ("away", 30, 500, SECOND * 50),
        ("here", 30, 500, Duration::ZERO),
    ];
    let seen = compete(limit().fair_by(tenant), &tenants).await;
    assert!(seen["here"].longest_wait < SECOND * 40);
    assert!(seen["here"].tokens > seen["away"].tokens);
}

#[tokio::test(start_paused = true)]
async fn without_tokens_tenants_get_as_many_calls() {
    let tenants = [
        ("heavy", 60, 0, Duration::ZERO),
        ("light", 4, 0, Duration::ZERO),
    ];
    let layer = RateLimitLayer::new().requests(120, MINUTE).fair_by(tenant);
    let model = layer
        .max_wait(Duration::MAX)
        .layer(service_fn(|_: ModelRequest| async {
            Ok::<_, Error>(ModelResponse::from_text("fine").with_usage(Usage::new(1, 0)))
        }));
    let counts = Arc::new(Mutex::new(BTreeMap::<&str, u32>::new()));
    let mut tasks = Vec::new();
    for (name, count, ..) in tenants {
        for _ in 0..count {
            let agent = Agent::builder(model.clone()).build().unwrap();
            let counts = counts.clone();
            tasks.push(tokio::spawn(async move {
                loop {
                    let request = AgentRequest::new("").with_extension(Tenant(name));
                    agent.run(request).await.unwrap();
                    *counts.lock().unwrap().entry(name).or_default() += 1;
                }
            }));
        }
    }
    sleep(MINUTE).await;
    for task in tasks {
        task.abort();
    }
    let counts = counts.lock().unwrap();
    // The first of them go before anybody has to wait.
    assert!(counts["heavy"].abs_diff(counts["light"]) <= 5, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn each_key_has_a_limit_of_its_own() {
    let layer = RateLimitLayer::new().requests(6, MINUTE).by(tenant);
    let agent = Agent::builder(ScriptedModel::always(using(1)))
        .model_layer(layer.max_wait(Duration::ZERO))
        .build()
        .unwrap();
    let ask = |name| agent.run(AgentRequest::new("").with_extension(Tenant(name)));
    ask("ada").await.unwrap();
    ask("grace").await.unwrap();
    assert_eq!(ask("ada").await.unwrap_err().kind(), ErrorKind::Overloaded);
}

#[tokio::test(start_paused = true)]
async fn a_run_without_a_key_fails_and_is_not_counted_for_another() {
    let layer = RateLimitLayer::new().requests(6, MINUTE).by(tenant);
    let agent = Agent::builder(ScriptedModel::always(using(1)))
        .model_layer(layer)
        .build()
        .unwrap();
    let error = agent.run("").now_or_never().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
}
