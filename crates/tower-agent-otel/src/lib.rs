//! OpenTelemetry spans and metrics of an agent's calls, by the GenAI conventions.
//!
//! ```text
//! OpenTelemetry  ->  Bundle      one layer around each agent, model and tool call of a tree
//! ```
//!
//! Give it to the outermost agent, before everything else, with
//! [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks), or to one run with
//! [`with_callbacks`](tower_agent::AgentRequest::with_callbacks); not to both, since each records
//! every call.
//!
//! ```
//! use tower_agent::Agent;
//! use tower_agent_otel::OpenTelemetry;
//! # use tower_agent_test::{ScriptedModel, Turn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower_agent::BoxError> {
//! # let model = ScriptedModel::new([Turn::from_text("Good day.")]);
//! let agent = Agent::builder(model).global_callbacks(OpenTelemetry::new()).build()?;
//! assert_eq!(agent.run("Hello.").await?.text(), "Good day.");
//! # Ok(())
//! # }
//! ```
//!
//! Spans are `tracing` spans, so that a program needs a `tracing` subscriber with the layer of
//! [`tracing-opentelemetry`](https://docs.rs/tracing-opentelemetry) to export them. Metrics are
//! recorded with the global meter provider, or [another](OpenTelemetry::meter_provider). Without
//! either, nothing is exported. A filter has to let through the target `tower_agent_otel` at level
//! `INFO`, and `tower_agent` at `WARN` for attempts.
//!
//! ```no_run
//! use opentelemetry::trace::TracerProvider;
//! use opentelemetry_otlp::{MetricExporter, SpanExporter};
//! use opentelemetry_sdk::metrics::SdkMeterProvider;
//! use opentelemetry_sdk::trace::SdkTracerProvider;
//! use tracing_subscriber::prelude::*;
//!
//! # fn main() -> Result<(), tower_agent::BoxError> {
//! // To `OTEL_EXPORTER_OTLP_ENDPOINT`, by default http://localhost:4318.
//! let spans = SpanExporter::builder().with_http().build()?;
//! let tracers = SdkTracerProvider::builder().with_batch_exporter(spans).build();
//! let spans = tracing_opentelemetry::layer().with_tracer(tracers.tracer("my_program"));
//! tracing_subscriber::registry().with(spans).init();
//!
//! let metrics = MetricExporter::builder().with_http().build()?;
//! let meters = SdkMeterProvider::builder().with_periodic_exporter(metrics).build();
//! opentelemetry::global::set_meter_provider(meters.clone());
//!
//! // Run agents, and at the end of the program:
//! tracers.shutdown()?;
//! meters.shutdown()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Spans
//!
//! | span | kind | one for each |
//! |---|---|---|
//! | `invoke_agent {agent}` | internal | call of an agent |
//! | `invoke_workflow {team}` | internal | call of a team |
//! | `chat {model}` | client; internal if no model was called | model call |
//! | `execute_tool {tool}` | internal | tool call |
//!
//! A span is one logical call: it is outside all retries, fallbacks, callbacks and layers of the
//! agent. The attempts inside it are its events, `retrying call` and `falling back to next model`,
//! with the number of the attempt and the kind of its error. The span is entered at every poll of
//! what is inside, so that a tool's own events and spans, and those of an HTTP client, belong to
//! it. An agent used as a tool is a child of its `execute_tool`, and the members of a team are
//! children of their `invoke_workflow`.
//!
//! A model call that a callback or a layer such as a cache has answered has the attribute
//! `tower_agent.answered_without_model`. It is no client span, has no server and no provider, and
//! is in no metric of model calls; nor is one that was refused before it reached a model. Until a
//! call reaches the model, events are its own and spans are beside it, inside the agent's: a span's
//! kind cannot change once others are inside.
//!
//! A span ends exactly once, with the call: when it succeeds, fails or panics, and when it is
//! dropped, for example because the reader of a stream has gone. Work that a tool leaves behind in
//! another task does not keep it open.
//!
//! `error.type` is the [code](tower_agent::ErrorKind::code) of the error's kind, such as
//! `rate_limited`; `cancelled` for a call that was dropped, `tool` also for a tool that answered
//! with an error, and `_OTHER` for anything else. A panic is an error like any other. A run that
//! was interrupted, or whose invocation was ended by a callback, has not failed.
//!
//! A call that waits for an answer, such as that of a person who is to approve it, ends with the
//! attribute `tower_agent.waiting`, as do the agents around it. Such a tool call was not executed:
//! its duration is no measurement of `gen_ai.execute_tool.duration`, and when the run goes on it
//! has a second span.
//!
//! The span of a tool that does not exist is `execute_tool _OTHER`, and its `gen_ai.tool.name` has
//! at most 64 bytes of the name, which the model has made up.
//!
//! The provider and the model are those that the model [tells](tower_agent::model::ModelTarget).
//! The models of `tower-agent-providers` do; for others set
//! [`provider_name`](OpenTelemetry::provider_name) and the model in the settings.
//!
//! They are those of the model that was called last, such as that of a fallback, and
//! `gen_ai.response.model` is what that one says has answered. Each attribute is written once, so
//! that what a model tells when it is called comes too late for a sampler, which sees the
//! operation, the names, the run and the conversation.
//!
//! Every span has the id of the run, `tower_agent.run.id`, and of the
//! [conversation](OpenTelemetry::conversation_id), which stays that of the run before for one that
//! is resumed, or goes on with a later message. It has its
//! [user](OpenTelemetry::user_id) if the program says who that is.
//!
//! The tokens of an agent's span are the sum of those inside it, sub-agents included. Some backends
//! add up the tokens of all spans; for those that know OpenInference, an agent's span says that it
//! has none of its own.
//!
//! # Trace context
//!
//! A model call over HTTP carries the trace if the model's HTTP client is in a
//! [`PropagateContextLayer`].
//!
//! # Cost
//!
//! A program without a subscriber, and without a global meter provider at the time when the agent
//! is built, pays nothing for its calls and deltas: a run that starts while nobody listens [goes
//! past](tower_agent::callback::Bundle::idle_when) the layers, also if somebody begins to listen
//! before it ends. Among the callbacks of one agent alone, or of one request, the layers are there
//! and record nothing.
//!
//! # Metrics
//!
//! | metric | of |
//! |---|---|
//! | `gen_ai.client.inference.duration` | model calls, in seconds |
//! | `gen_ai.client.inference.time_to_first_chunk`, `.time_per_output_chunk` | streamed model calls, in seconds; the time that a run waits for its consumer does not count between chunks |
//! | `gen_ai.client.inference.usage.{input_tokens, output_tokens, cache_read.input_tokens, cache_write.input_tokens, reasoning.output_tokens}` | tokens spent |
//! | `gen_ai.client.inference.operation.{input_tokens, output_tokens}` | tokens of one model call |
//! | `gen_ai.execute_tool.duration` | tool calls, in seconds |
//! | `gen_ai.invoke_agent.duration`, `gen_ai.invoke_workflow.duration` | calls of agents and teams, in seconds |
//! | `gen_ai.invoke_agent.inference_calls`, `.tool_calls` | calls that one agent has made itself |
//!
//! Those of model calls have the provider, the models and the server as attributes, those of tools
//! the names that are declared: what a model has made up is `_OTHER`. Durations and the tokens of a
//! call have `error.type`.
//!
//! Tokens are counted where the model answers, and nowhere else: a response of a callback has none,
//! and neither agents nor teams count those of their model calls again.
//!
//! # Exceptions
//!
//! A failed model or tool call is a `tracing` event of level `WARN` in its span, named
//! `gen_ai.client.operation.exception` or `gen_ai.execute_tool.exception`; with
//! `opentelemetry-appender-tracing` it is a log record of that name as well.
//!
//! # Content
//!
//! Instructions, messages, tools, arguments, results and the texts of errors are recorded only with
//! [`record_content`](OpenTelemetry::record_content). They are what
//! [redaction](https://docs.rs/tower-agent-middleware/latest/tower_agent_middleware/redact) lets
//! through: the input is what the model was sent, and everything else what leaves the outermost
//! callback.
//!
//! An agent's span has what was asked and answered: the messages that its first model call has
//! sent, and its response, if that is the response of a model call inside it. Another response was
//! written by a callback of the agent, and redaction may be outside that one. `input.value` and
//! `output.value` are their texts, by which backends that know OpenInference list traces.
//!
//! # Conventions
//!
//! Names are those of `open-telemetry/semantic-conventions-genai` at revision
//! `024a4f944a1291fcb627c9c47da69e79868dd15e`, status *Development*: a later version of this crate
//! may follow a later revision. The tests check names, types and units of all that they receive
//! against a copy of that state.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Tests and examples may; the library may not.
#![cfg_attr(
    not(test),
    warn(clippy::expect_used, clippy::panic, clippy::unwrap_used)
)]

mod calls;
mod content;
mod layer;
mod metrics;
mod names;
mod open_call;
mod open_telemetry;
mod propagate;
mod recorded;
mod target;
mod telemetry;

pub use self::open_telemetry::OpenTelemetry;
pub use self::propagate::{PropagateContext, PropagateContextLayer};

/// The README's example, so that it compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
