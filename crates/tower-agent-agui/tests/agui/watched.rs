//! A model that is seen to start, to speak and to be dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tower_agent::stream::Delta;
use tower_agent::{Agent, AgentBuilder, Error, ErrorKind, ModelRequest, ModelResponse};

/// The endings of the calls of one model.
#[derive(Clone, Default)]
pub struct Watched(Arc<Counts>);

#[derive(Default)]
struct Counts {
    calls: AtomicUsize,
    alive: AtomicUsize,
    deltas: AtomicUsize,
}

struct Alive(Watched);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.0.alive.fetch_sub(1, SeqCst);
    }
}

impl Watched {
    pub fn calls(&self) -> usize {
        self.0.calls.load(SeqCst)
    }

    /// How many calls are under way.
    pub fn alive(&self) -> usize {
        self.0.alive.load(SeqCst)
    }

    pub fn deltas(&self) -> usize {
        self.0.deltas.load(SeqCst)
    }

    /// An agent whose model never stops talking.
    pub fn agent(&self) -> AgentBuilder {
        let watched = self.clone();
        Agent::builder(tower::service_fn(move |request| {
            watched.clone().talk(request)
        }))
    }

    async fn talk(self, request: ModelRequest) -> Result<ModelResponse, Error> {
        self.0.calls.fetch_add(1, SeqCst);
        self.0.alive.fetch_add(1, SeqCst);
        let alive = Alive(self);
        let Some(sink) = request.delta_sender() else {
            return Err(Error::new(ErrorKind::Other, "nobody listens"));
        };
        let mut attempt = sink.open();
        loop {
            attempt.send(Delta::Text("word ".into())).await?;
            alive.0.0.deltas.fetch_add(1, SeqCst);
        }
    }
}
