//! The stack of layers: all that this gateway does to a call.

use std::sync::Arc;
use std::time::Duration;

use tower::ServiceBuilder;
use tower_agent::model::BoxModel;
use tower_agent::{BoxError, Callbacks, Result, RunContext};
use tower_agent_middleware::cache::CacheLayer;
use tower_agent_middleware::circuit_breaker::CircuitBreakerLayer;
use tower_agent_middleware::hedge::HedgeLayer;
use tower_agent_middleware::pool::Pool;
use tower_agent_middleware::rate_limit::RateLimitLayer;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_agent_providers::openai::OpenAi;

use crate::settings::Settings;
use crate::telemetry::Telemetry;

/// The name of the tenant whose call it is: typed data of each run.
pub(crate) struct TenantName(pub(crate) Arc<str>);

pub(crate) fn tenant(run: &RunContext) -> Result<String> {
    Ok(run.extension::<TenantName>()?.0.to_string())
}

pub(crate) fn model(
    providers: &[String],
    settings: &Settings,
    telemetry: &Telemetry,
) -> Result<BoxModel, BoxError> {
    let minute = Duration::from_secs(60);
    let mut endpoints = Vec::new();
    for url in providers {
        let mut provider = OpenAi::builder().base_url(url);
        if let Some(key) = &settings.provider_key {
            provider = provider.api_key(key);
        }
        let endpoint = ServiceBuilder::new()
            .layer(CallTimeoutLayer::new(Duration::from_secs(300)).idle(Duration::from_secs(30)))
            .service(provider.build()?);
        endpoints.push((url.clone(), endpoint));
    }
    let model = ServiceBuilder::new()
        // Sees every call, those that are answered or refused here as well.
        .layer(Callbacks::new().with(telemetry.clone()))
        // What is replayed costs nobody anything.
        .layer(CacheLayer::new(tenant).time_to_live(minute))
        .layer(
            RateLimitLayer::new()
                .requests(settings.requests_per_minute, minute)
                .by(tenant)
                .max_wait(Duration::from_secs(5)),
        )
        // Opens if all providers are down; the pool sees to each of them.
        .layer(CircuitBreakerLayer::new().pause(Duration::from_secs(10)))
        .layer(CallRetryLayer::new())
        .layer(HedgeLayer::new(settings.hedge_after).percentile(0.95))
        .service(Pool::new(endpoints));
    Ok(BoxModel::new(model))
}
