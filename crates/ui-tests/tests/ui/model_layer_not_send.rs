// The cure: `Arc` and a `Mutex` in place of `Rc` and `RefCell`.
use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};

use tower::{Layer, Service};
use tower_agent_test::ScriptedModel;
use tower_agent::{Agent, ModelRequest};

struct CountLayer;

impl<S> Layer<S> for CountLayer {
    type Service = Count<S>;

    fn layer(&self, inner: S) -> Count<S> {
        Count { inner, calls: Rc::new(Cell::new(0)) }
    }
}

#[derive(Clone)]
struct Count<S> {
    inner: S,
    calls: Rc<Cell<u32>>,
}

impl<S: Service<ModelRequest>> Service<ModelRequest> for Count<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: ModelRequest) -> S::Future {
        self.calls.set(self.calls.get() + 1);
        self.inner.call(request)
    }
}

fn main() {
    let _ = Agent::builder(ScriptedModel::new([])).model_layer(CountLayer);
}
