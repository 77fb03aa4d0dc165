//! Counts calls, as a callback around them, in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use tower_agent::call::Origin;
use tower_agent::callback::Outcome;
use tower_agent::{Action, Callback, ErrorKind, ModelRequest, ModelResponse, Request, Result};

use crate::stack::tenant;

/// The counts of all calls. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Telemetry(Arc<Mutex<BTreeMap<Labels, Counts>>>);

/// The tenant and the outcome of calls.
type Labels = (String, String);

#[derive(Default)]
struct Counts {
    calls: u64,
    time: Duration,
    tokens: u64,
}

/// The start of a call.
#[derive(Clone)]
struct Started(Instant);

impl Callback<ModelRequest> for Telemetry {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        request.extensions_mut().insert(Started(Instant::now()));
        Ok(Action::Continue)
    }

    fn on_end(&self, request: &ModelRequest, outcome: Outcome<'_, ModelResponse>) {
        let tenant = tenant(request.context()).unwrap_or_default();
        let (word, tokens) = match outcome {
            Outcome::Done(response) if response.origin() == Origin::Replay => ("cached".into(), 0),
            Outcome::Done(response) => ("done".into(), response.usage().total()),
            Outcome::Failed(error) => (name(error.kind()), 0),
            _ => ("dropped".into(), 0),
        };
        let started = request.extensions().get::<Started>();
        let time = started.map_or(Duration::ZERO, |Started(started)| started.elapsed());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = all.entry((tenant, word)).or_default();
        counts.calls += 1;
        counts.time += time;
        counts.tokens += tokens;
    }
}

fn name(kind: ErrorKind) -> String {
    format!("{kind:?}").to_lowercase()
}

impl Telemetry {
    /// Returns the server of the counts, for a port of its own.
    pub(crate) fn app(&self) -> Router {
        let telemetry = self.clone();
        let text = move || async move { telemetry.text() };
        Router::new().route("/metrics", get(text))
    }

    /// Returns all counts as text.
    pub(crate) fn text(&self) -> String {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        for ((tenant, outcome), counts) in &*all {
            let labels = format!("{{tenant={tenant:?},outcome={outcome:?}}}");
            let Counts {
                calls,
                time,
                tokens,
            } = counts;
            let seconds = time.as_secs_f64();
            // Writing to a `String` does not fail.
            let _ = writeln!(text, "gateway_calls_total{labels} {calls}");
            let _ = writeln!(text, "gateway_seconds_total{labels} {seconds}");
            let _ = writeln!(text, "gateway_tokens_total{labels} {tokens}");
        }
        text
    }
}
