//! The rows to count: instructions in `benches/counts.rs`, allocations there and in
//! `benches/allocations.rs`.

#[path = "by_hand.rs"]
mod by_hand;
#[path = "deltas.rs"]
mod deltas;
#[path = "journal.rs"]
mod journal;
#[path = "middleware.rs"]
pub mod middleware;
#[path = "protocols.rs"]
mod protocols;
#[path = "recorded.rs"]
pub mod recorded;
#[path = "work.rs"]
pub mod work;

use std::convert::identity;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Temporality};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tower::layer::util::Identity;
use tower_agent::callback::{Bundle, after_model, after_tool, before_model, before_tool};
use tower_agent::stream::{Observer, observer};
use tower_agent::{Agent, AgentBuilder, AgentRequest};
use tower_agent_agui::AgUi;
use tower_agent_otel::OpenTelemetry;
use tower_agent_providers::anthropic::Messages;
use tower_agent_providers::gemini::{GenerateContent, Interactions};
use tower_agent_providers::ollama;
use tower_agent_providers::openai::{Chat, Responses};
use tracing::Dispatch;
use tracing::dispatcher::with_default;
use tracing_subscriber::prelude::*;

use self::by_hand::Loop;
use self::deltas::{DELTAS, WORD};
use self::middleware::MIDDLEWARE;
use self::work::{Hooks, SUMS, finish};

/// Tool calls of one turn that run at once.
const AT_ONCE: usize = 100;

/// A row to count.
#[derive(Clone, Copy)]
pub struct Row {
    pub name: &'static str,
    /// How often the counted operation runs in one run.
    pub per_run: usize,
    work: Work,
}

#[derive(Clone, Copy)]
enum Work {
    /// Sets up the row and returns one run of it.
    Of(fn() -> Box<dyn FnMut()>),
    /// A run of an agent to which something was added.
    InAgent(fn(AgentBuilder) -> AgentBuilder),
}

impl Row {
    /// Sets up the row and returns one run of it.
    pub fn make(&self) -> Box<dyn FnMut()> {
        match self.work {
            Work::Of(make) => make(),
            Work::InAgent(add) => agent(add(work::agent(SUMS))),
        }
    }
}

/// All rows, in the order of the output.
pub fn rows() -> Vec<Row> {
    let middleware = MIDDLEWARE.iter().map(|middleware| Row {
        name: middleware.name,
        per_run: 1,
        work: Work::InAgent(middleware.add),
    });
    let mut rows = RUNS.to_vec();
    rows.extend(middleware);
    rows.extend(DELTAS_OF_A_RUN);
    rows.extend(PROTOCOLS);
    rows
}

/// Runs of 20 model calls and 19 tool calls.
pub const RUNS: &[Row] = &[
    run(BY_HAND, || by_hand(0)),
    run(AGENT, || agent(work::agent(SUMS))),
    run("by hand, 10 boxed callbacks of 2 hooks", || by_hand(10)),
    run("agent, 10 callbacks of 2 async hooks", || agent(hooked(10))),
    run(CLOSURES[0], || agent(closures(10))),
    run(CLOSURES[1], || agent(closures(20))),
    run("agent, watched", watched),
    run("agent, observed by nobody", || {
        observed(work::agent(SUMS), false, identity)
    }),
    run("agent, observed", || {
        observed(work::agent(SUMS), true, identity)
    }),
    run(
        "agent, observed, a layer and a callback that do nothing",
        || observed(wrapped(), true, identity),
    ),
    run("agent, observed with wrappers, the same", || {
        observed(wrapped(), true, Observer::with_wrappers)
    }),
    run(UNHEARD[0].0, || agent(telemetry(OpenTelemetry::new()))),
    run(
        "agent, OpenTelemetry, spans and metrics exported to nobody",
        exported,
    ),
    Row {
        name: AT_ONCE_ROW,
        per_run: AT_ONCE,
        work: Work::Of(at_once),
    },
];

/// The run of a loop that is not this crate's, and of an agent.
pub const BY_HAND: &str = "by hand";
pub const AGENT: &str = "agent";

/// One of many tool calls of a turn.
pub const AT_ONCE_ROW: &str = "tool call, 100 of them at once";

/// A streamed delta of a run.
pub const DELTAS_OF_A_RUN: &[Row] = &[
    delta("delta, written by hand", || {
        Box::new(deltas::written_by_hand)
    }),
    delta(
        "delta, made and written by `serde_json` alone",
        written_alone,
    ),
    delta(DELTA, || streamed(0)),
    delta(UNHEARD[1].0, unheard),
    delta("delta of a run, `Flow` with ten tools", || {
        streamed_by(middleware::flow(deltas::agent(DELTAS, 0)))
    }),
    delta(REDACTED_DELTA, || {
        streamed_by(middleware::redact(deltas::agent(DELTAS, 0)))
    }),
    delta(TO_AGUI, || served(0)),
    delta("delta of a run, to AG-UI, 10 mappers", || served(10)),
];

/// Rows of deltas that aims are about.
pub const DELTA: &str = "delta of a run, not translated";
pub const REDACTED_DELTA: &str = "delta of a run, `Redact`";
pub const TO_AGUI: &str = "delta of a run, to AG-UI";

/// A message of a request to a provider, and a delta of its response.
pub const PROTOCOLS: &[Row] = &[
    message("message to Anthropic", protocols::encoded::<Messages>),
    message(BY_CHAT[0], protocols::encoded::<Chat>),
    message("message to Responses", protocols::encoded::<Responses>),
    message("message to Gemini", protocols::encoded::<GenerateContent>),
    message(
        "message to Gemini Interactions",
        protocols::encoded::<Interactions>,
    ),
    message("message to Ollama", protocols::encoded::<ollama::Chat>),
    word("delta from Anthropic", || {
        protocols::decoded::<Messages>(protocols::ANTHROPIC)
    }),
    word("delta from chat completions, read by hand", || {
        Box::new(protocols::read_by_hand)
    }),
    word(
        "delta from chat completions, read by `serde_json` alone",
        || Box::new(protocols::read_alone),
    ),
    word(BY_CHAT[1], || protocols::decoded::<Chat>(protocols::CHAT)),
    word("delta from Responses", || {
        protocols::decoded::<Responses>(protocols::RESPONSES)
    }),
    word("delta from Gemini", || {
        protocols::decoded::<GenerateContent>(protocols::GEMINI)
    }),
    word("delta from Gemini Interactions", || {
        protocols::decoded::<Interactions>(protocols::INTERACTIONS)
    }),
    word("delta from Ollama", || {
        protocols::decoded::<ollama::Chat>(protocols::OLLAMA)
    }),
];

/// The rows whose difference is the cost of 20 closures around each of 39 calls.
pub const CLOSURES: [&str; 2] = [
    "agent, 10 + 10 sync closures",
    "agent, 20 + 20 sync closures",
];

/// The row of that difference.
pub const CLOSURE: &str = "a sync closure";

/// The rows with telemetry that nobody receives, those without, and by how many instructions the
/// two may differ: 100 a call, for asking once a run, and nothing a delta but rounding.
pub const UNHEARD: [(&str, &str, f64); 2] = [
    (
        "agent, OpenTelemetry that nobody receives",
        AGENT,
        100.0 * 39.0,
    ),
    (
        "delta of a run, OpenTelemetry that nobody receives",
        DELTA,
        1.0,
    ),
];

/// The protocol that the others are compared with, and its rows.
pub const CHAT: &str = "chat completions";
pub const BY_CHAT: [&str; 2] = ["message to chat completions", "delta from chat completions"];

/// How many times the instructions of [`BY_CHAT`] another protocol may cost.
pub const TIMES_CHAT: f64 = 1.3;

const fn run(name: &'static str, make: fn() -> Box<dyn FnMut()>) -> Row {
    Row {
        name,
        per_run: 1,
        work: Work::Of(make),
    }
}

const fn message(name: &'static str, make: fn() -> Box<dyn FnMut()>) -> Row {
    Row {
        name,
        per_run: protocols::MESSAGES,
        work: Work::Of(make),
    }
}

const fn word(name: &'static str, make: fn() -> Box<dyn FnMut()>) -> Row {
    Row {
        name,
        per_run: protocols::WORDS,
        work: Work::Of(make),
    }
}

const fn delta(name: &'static str, make: fn() -> Box<dyn FnMut()>) -> Row {
    Row {
        name,
        per_run: DELTAS,
        work: Work::Of(make),
    }
}

fn by_hand(hooks: usize) -> Box<dyn FnMut()> {
    let by_hand = Loop::new(SUMS, hooks);
    Box::new(move || {
        let (messages, tokens) = finish(by_hand.run("Count to 19.")).unwrap();
        assert_eq!((messages.len(), tokens), (2 * SUMS + 2, 2200));
    })
}

fn agent(builder: AgentBuilder) -> Box<dyn FnMut()> {
    let agent = builder.build().unwrap();
    Box::new(move || {
        let response = finish(agent.run(AgentRequest::new("Count to 19."))).unwrap();
        assert_eq!(response.messages().len(), 2 * SUMS + 2);
    })
}

fn at_once() -> Box<dyn FnMut()> {
    let agent = Agent::builder(work::at_once(AT_ONCE)).tool(work::add());
    let agent = agent.build().unwrap();
    Box::new(move || {
        let response = finish(agent.run(AgentRequest::new("Add."))).unwrap();
        assert_eq!(response.messages().len(), AT_ONCE + 3);
    })
}

fn hooked(callbacks: usize) -> AgentBuilder {
    (0..callbacks).fold(work::agent(SUMS), |builder, _| {
        builder.on_model(Hooks).on_tool(Hooks)
    })
}

/// This many closures before and after each call.
fn closures(pairs: usize) -> AgentBuilder {
    (0..pairs).fold(work::agent(SUMS), |builder, _| {
        builder
            .on_model(before_model(|_| {}))
            .on_model(after_model(|_, _| {}))
            .on_tool(before_tool(|_| {}))
            .on_tool(after_tool(|_, _| {}))
    })
}

fn telemetry(telemetry: OpenTelemetry) -> AgentBuilder {
    work::agent(SUMS).global_callbacks(telemetry)
}

/// Everything is recorded and handed to an exporter, which drops it.
fn exported() -> Box<dyn FnMut()> {
    let tracers = SdkTracerProvider::builder()
        .with_simple_exporter(Nobody)
        .build();
    let metrics = PeriodicReader::builder(Nobody).with_interval(Duration::from_secs(3600));
    let meters = SdkMeterProvider::builder()
        .with_reader(metrics.build())
        .build();
    let spans = tracing_opentelemetry::layer().with_tracer(tracers.tracer("benches"));
    let subscriber = tracing_subscriber::registry().with(spans);
    let dispatch = Dispatch::new(subscriber);
    let mut run = agent(telemetry(OpenTelemetry::new().meter_provider(&meters)));
    Box::new(move || with_default(&dispatch, &mut run))
}

/// An exporter to nowhere.
#[derive(Debug)]
struct Nobody;

impl SpanExporter for Nobody {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        Ok(())
    }
}

impl PushMetricExporter for Nobody {
    async fn export(&self, _: &ResourceMetrics) -> OTelSdkResult {
        Ok(())
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        Temporality::Cumulative
    }
}

fn watched() -> Box<dyn FnMut()> {
    let agent = work::agent(SUMS).build().unwrap();
    Box::new(move || {
        let events = finish(agent.stream("Count to 19.").count());
        assert!(events > 2 * SUMS, "{events} events");
    })
}

fn written_alone() -> Box<dyn FnMut()> {
    Box::new(deltas::written_alone)
}

/// An agent with a layer around its model calls, and a callback around those of its tools.
fn wrapped() -> AgentBuilder {
    work::agent(SUMS)
        .model_layer(Identity::new())
        .on_tool(before_tool(|_| ()))
}

/// An observer, and perhaps a reader, which takes what it is told after each run.
fn observed(
    builder: AgentBuilder,
    has_reader: bool,
    ask: fn(Observer) -> Observer,
) -> Box<dyn FnMut()> {
    let (observer, observations) = observer(1024);
    let mut reader = has_reader.then_some(observations);
    let bundle = Bundle::new().observer(ask(observer));
    let mut run = agent(builder.global_callbacks(bundle));
    Box::new(move || {
        run();
        let Some(observations) = &mut reader else {
            return;
        };
        let mut events = 0;
        while observations.next().now_or_never().is_some() {
            events += 1;
        }
        assert!(events > 2 * SUMS, "{events} events");
        assert_eq!(observations.dropped(), 0);
    })
}

fn unheard() -> Box<dyn FnMut()> {
    streamed_by(deltas::agent(DELTAS, 0).global_callbacks(OpenTelemetry::new()))
}

fn streamed(mappers: usize) -> Box<dyn FnMut()> {
    streamed_by(deltas::agent(DELTAS, mappers))
}

fn streamed_by(builder: AgentBuilder) -> Box<dyn FnMut()> {
    let agent = builder.build().unwrap();
    Box::new(move || {
        let events = finish(agent.stream("Talk.").count());
        assert!(events > DELTAS, "{events} events");
    })
}

fn served(mappers: usize) -> Box<dyn FnMut()> {
    let server = AgUi::new(deltas::agent(DELTAS, mappers).build().unwrap());
    let mut bytes = Vec::with_capacity(32 << 10);
    Box::new(move || {
        let sent = deltas::serve(&server, &mut bytes);
        assert!(sent > DELTAS * WORD.len(), "{sent} bytes");
    })
}
