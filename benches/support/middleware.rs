//! Middleware that has nothing to do, around a model that answers at once.

use std::time::Duration;

use tower::{ServiceExt, service_fn};
use tower_agent::model::ModelService;
use tower_agent::{BoxError, Callbacks, ModelRequest, ModelResponse, RunContext};
use tower_agent_middleware::adaptive_concurrency::AdaptiveConcurrencyLayer;
use tower_agent_middleware::budget::{Budget, Limits};
use tower_agent_middleware::cache::CacheLayer;
use tower_agent_middleware::circuit_breaker::CircuitBreakerLayer;
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::guardrail::{Guardrail, Verdict};
use tower_agent_middleware::hedge::HedgeLayer;
use tower_agent_middleware::pool::Pool;
use tower_agent_middleware::rate_limit::RateLimitLayer;
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::router::Router;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_layer::Layer;

use super::work::finish;

/// The calls of one run.
pub const CALLS: usize = 20;

const MINUTE: Duration = Duration::from_secs(60);

fn model() -> impl ModelService {
    let response = ModelResponse::from_text("done");
    service_fn(move |_: ModelRequest| {
        let response = response.clone();
        async { Ok::<_, BoxError>(response) }
    })
}

fn calls(model: impl ModelService) -> Box<dyn FnMut()> {
    let request = ModelRequest::default();
    Box::new(move || {
        for _ in 0..CALLS {
            finish(model.clone().oneshot(request.clone())).ok().unwrap();
        }
    })
}

pub fn bare() -> Box<dyn FnMut()> {
    calls(model())
}

pub fn retry() -> Box<dyn FnMut()> {
    calls(CallRetryLayer::new().layer(model()))
}

pub fn timeout() -> Box<dyn FnMut()> {
    calls(CallTimeoutLayer::new(MINUTE).layer(model()))
}

pub fn fallback() -> Box<dyn FnMut()> {
    calls(Fallback::new(model()).or(model()))
}

pub fn budget() -> Box<dyn FnMut()> {
    let budget = Budget::new(Limits::new().model_calls(u64::MAX));
    calls(Callbacks::new().with(budget).layer(model()))
}

pub fn guardrail() -> Box<dyn FnMut()> {
    calls(Guardrail::before(async |_| Verdict::Pass).layer(model()))
}

pub fn redact() -> Box<dyn FnMut()> {
    calls(redacting().around_model().layer(model()))
}

/// The guard that redacts, with detectors of which none finds anything.
pub fn redacting() -> Redact {
    let detectors = [Detector::email(), Detector::card(), Detector::secret()];
    Redact::new(detectors).unwrap()
}

pub fn circuit_breaker() -> Box<dyn FnMut()> {
    calls(CircuitBreakerLayer::new().layer(model()))
}

pub fn rate_limit() -> Box<dyn FnMut()> {
    // So many that a run never waits.
    let limit = RateLimitLayer::new()
        .requests(u64::MAX, MINUTE)
        .tokens(u64::MAX, MINUTE);
    calls(limit.layer(model()))
}

pub fn cache() -> Box<dyn FnMut()> {
    let tenant = |_: &RunContext| Ok("tenant".to_owned());
    calls(CacheLayer::new(tenant).layer(model()))
}

pub fn adaptive_concurrency() -> Box<dyn FnMut()> {
    calls(AdaptiveConcurrencyLayer::new().layer(model()))
}

pub fn hedge() -> Box<dyn FnMut()> {
    calls(HedgeLayer::new(MINUTE).percentile(0.95).layer(model()))
}

pub fn pool() -> Box<dyn FnMut()> {
    let endpoints = ["a", "b", "c", "d"].map(|name| (name, model()));
    calls(Pool::new(endpoints))
}

pub fn router() -> Box<dyn FnMut()> {
    let router = Router::new(|_: &ModelRequest| Ok("first"));
    calls(router.route("first", model()).route("second", model()))
}
