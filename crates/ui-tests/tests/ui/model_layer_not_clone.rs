//! A layer whose service cannot be cloned.

use std::time::Duration;

use tower::limit::RateLimitLayer;
use tower_agent::{Agent, BoxError, ModelRequest, ModelResponse};

fn main() {
    let model = tower::service_fn(|_: ModelRequest| async {
        Ok::<_, BoxError>(ModelResponse::from_text("done"))
    });
    let limit = RateLimitLayer::new(10, Duration::from_secs(60));
    let _ = Agent::builder(model).model_layer(limit);
}
