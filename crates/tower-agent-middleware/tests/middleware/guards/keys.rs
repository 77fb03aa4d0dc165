//! Keys of limits, circuits and caches, which users choose: how long they may be, and how many.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tower_agent::model::ModelService;
use tower_agent::{Error, ErrorKind, ModelRequest, Result, RunContext};
use tower_agent_middleware::adaptive_concurrency::AdaptiveConcurrencyLayer;
use tower_agent_middleware::cache::CacheLayer;
use tower_agent_middleware::circuit_breaker::CircuitBreakerLayer;
use tower_agent_middleware::rate_limit::RateLimitLayer;
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::Layer;

use test_support::call;

const DAY: Duration = Duration::from_secs(86_400);

/// The keys that are remembered.
const MOST: usize = 100_000;

/// The user who calls.
#[derive(Clone, Debug, Default)]
struct Caller(Arc<AtomicUsize>);

impl Caller {
    fn key(&self) -> impl Fn(&RunContext) -> Result<String> + Send + Sync + use<> {
        let caller = self.0.clone();
        move |_| Ok(caller.load(Ordering::SeqCst).to_string())
    }

    /// Calls a model for a user, and returns whether it was called.
    async fn ask<M: ModelService>(&self, model: &M, user: usize) -> bool {
        self.0.store(user, Ordering::SeqCst);
        call(model.clone(), ModelRequest::default()).await.is_ok()
    }
}

fn model() -> ScriptedModel {
    ScriptedModel::always(Turn::from_text("fine"))
}

/// Calls a model, whose layer has a key that is too long.
async fn error_of(model: impl ModelService) -> Error {
    let result = call(model, ModelRequest::default()).await;
    result.unwrap_err()
}

#[tokio::test]
async fn a_key_that_is_too_long_fails_its_call_and_is_not_kept() {
    let long = |_: &RunContext| Ok("x".repeat(513));
    let inner = model();
    let errors = [
        error_of(RateLimitLayer::new().by(long).layer(inner.clone())).await,
        error_of(RateLimitLayer::new().fair_by(long).layer(inner.clone())).await,
        error_of(
            AdaptiveConcurrencyLayer::new()
                .by(long)
                .layer(inner.clone()),
        )
        .await,
        error_of(CircuitBreakerLayer::new().by(long).layer(inner.clone())).await,
        error_of(CacheLayer::new(long).layer(inner.clone())).await,
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.message().contains("513 bytes"), "{error}");
    }
    assert!(inner.requests().is_empty());

    let fits = |_: &RunContext| Ok("x".repeat(512));
    let model = RateLimitLayer::new().by(fits).layer(inner);
    call(model, ModelRequest::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn of_too_many_keys_a_limit_forgets_those_that_were_used_least_recently() {
    let caller = Caller::default();
    let limit = RateLimitLayer::new().requests(1, DAY).by(caller.key());
    let model = limit.max_wait(Duration::ZERO).layer(model());

    // Everybody has used up the limit of the day, and the first user comes again and again.
    for user in 0..MOST {
        assert!(caller.ask(&model, user).await);
        if user % 10_000 == 0 {
            assert!(!caller.ask(&model, 0).await, "after {user}");
        }
    }
    assert!(!caller.ask(&model, 1).await, "there was room for all");
    assert!(caller.ask(&model, MOST).await);

    // The one who came last is limited as before, and so is the one who kept coming.
    assert!(!caller.ask(&model, MOST).await);
    assert!(!caller.ask(&model, 0).await);
    // So is the one who has just been refused, while the next one is forgotten.
    assert!(!caller.ask(&model, 1).await);
    assert!(caller.ask(&model, 2).await);
}
