// The cure: derive `Clone`, or `Buffer`.
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use tower::Service;
use tower_agent::{Agent, Error, ModelRequest, ModelResponse};

struct Fixed;

impl Service<ModelRequest> for Fixed {
    type Response = ModelResponse;
    type Error = Error;
    type Future = Ready<Result<ModelResponse, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: ModelRequest) -> Self::Future {
        ready(Ok(ModelResponse::from_text("fixed")))
    }
}

fn main() {
    let _ = Agent::builder(Fixed);
}
