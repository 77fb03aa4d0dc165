//! A policy for this crate's error, around a layer of tower whose error is another. The trait is
//! tower's, so that the message has no note of ours: the cure is in the docs of `callback`.

use std::time::Duration;

use tower::ServiceBuilder;
use tower::retry::{Policy, RetryLayer};
use tower_agent::{Agent, BoxError, Error, ModelRequest, ModelResponse};

#[derive(Clone)]
struct Again;

impl Policy<ModelRequest, ModelResponse, Error> for Again {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        _: &mut ModelRequest,
        _: &mut Result<ModelResponse, Error>,
    ) -> Option<Self::Future> {
        None
    }

    fn clone_request(&mut self, request: &ModelRequest) -> Option<ModelRequest> {
        Some(request.clone())
    }
}

fn main() {
    let model = tower::service_fn(|_: ModelRequest| async {
        Ok::<_, BoxError>(ModelResponse::from_text("done"))
    });
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(Again))
        .timeout(Duration::from_secs(60));
    let _ = Agent::builder(model).model_layer(stack.into_inner());
}
