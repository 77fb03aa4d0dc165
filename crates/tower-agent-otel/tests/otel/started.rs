//! The attributes that a span has from its start, which are all that a sampler sees.

use std::sync::{Arc, Mutex};

use opentelemetry::trace::{Link, SpanKind, TraceContextExt, TraceId, TraceState, TracerProvider};
use opentelemetry::{Context, KeyValue, global};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SamplingDecision, SamplingResult, SdkTracerProvider, ShouldSample};
use serde_json::json;
use tower::{ServiceBuilder, service_fn};
use tower_agent::context::ConversationId;
use tower_agent::{Agent, AgentRequest, Request};
use tower_agent_otel::{OpenTelemetry, PropagateContextLayer};
use tower_agent_providers::openai::OpenAi;
use tracing_subscriber::prelude::*;

/// Samples everything, and notes what it saw.
#[derive(Clone, Debug, Default)]
struct Notes(Arc<Mutex<Vec<StartedSpan>>>);

/// The name of a span, and its attributes at the start.
type StartedSpan = (String, Vec<KeyValue>);

impl ShouldSample for Notes {
    fn should_sample(
        &self,
        _: Option<&Context>,
        _: TraceId,
        name: &str,
        _: &SpanKind,
        attributes: &[KeyValue],
        _: &[Link],
    ) -> SamplingResult {
        let seen = (name.to_owned(), attributes.to_vec());
        self.0.lock().unwrap().push(seen);
        SamplingResult {
            decision: SamplingDecision::RecordAndSample,
            attributes: Vec::new(),
            trace_state: TraceState::default(),
        }
    }
}

impl Notes {
    /// Returns an attribute of each span of this kind that was started, in their order.
    fn of(&self, kind: &str, key: &str) -> Vec<Option<String>> {
        let notes = self.0.lock().unwrap();
        let spans = notes.iter().filter(|(name, _)| name.starts_with(kind));
        let values = spans.map(|(_, attributes)| {
            let found = attributes.iter().find(|found| found.key.as_str() == key);
            found.map(|attribute| attribute.value.to_string())
        });
        values.collect()
    }
}

/// The trace and the span that a request was sent in, and its header.
type Sent = (TraceId, Option<String>);

fn agent(sent: Arc<Mutex<Vec<Sent>>>) -> Agent {
    let server = service_fn(move |request: http::Request<_>| {
        let header = request.headers().get("traceparent");
        let header = header.map(|value| value.to_str().unwrap().to_owned());
        let trace = Context::current().span().span_context().trace_id();
        sent.lock().unwrap().push((trace, header));
        let answer = json!({
            "id": "chatcmpl-7",
            "model": "gpt-5-2026-01-01",
            "choices": [{ "index": 0, "finish_reason": "stop",
                "message": { "role": "assistant", "content": "Oslo." } }],
        });
        let body = http_body_util::Full::new(bytes::Bytes::from(answer.to_string()));
        async { Ok::<_, std::convert::Infallible>(http::Response::new(body)) }
    });
    let http = ServiceBuilder::new()
        .layer(PropagateContextLayer::new())
        .service(server);
    let model = OpenAi::builder()
        .base_url("http://models.test:8080/v1")
        .api_key("none")
        .model("gpt-5")
        .build_with(http)
        .unwrap();
    Agent::builder(model)
        .name("clerk")
        .global_callbacks(OpenTelemetry::new())
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_sampler_sees_what_conventions_want_at_the_start_and_the_model_is_sent_the_trace() {
    global::set_text_map_propagator(TraceContextPropagator::new());
    let notes = Notes::default();
    let tracers = SdkTracerProvider::builder()
        .with_sampler(notes.clone())
        .build();
    let spans = tracing_opentelemetry::layer().with_tracer(tracers.tracer("test"));
    let _guard = tracing_subscriber::registry().with(spans).set_default();

    let sent = Arc::default();
    let agent = agent(Arc::clone(&sent));
    for _ in 0..2 {
        let request = AgentRequest::new("Where?").with_extension(ConversationId::new("chat 7"));
        assert!(!request.context().run_id().is_empty());
        assert_eq!(agent.run(request).await.unwrap().text(), "Oslo.");
    }

    let chat = Some("chat 7".to_owned());
    for kind in ["invoke_agent", "chat"] {
        let ids = notes.of(kind, "gen_ai.conversation.id");
        assert_eq!(ids, [chat.clone(), chat.clone()], "{kind}");
    }
    assert_eq!(notes.of("chat", "gen_ai.operation.name").len(), 2);
    // Which model a call reaches is known once it has reached it, and written once.
    for key in [
        "gen_ai.provider.name",
        "gen_ai.request.model",
        "server.address",
    ] {
        assert_eq!(notes.of("chat", key), [None, None], "{key}");
    }

    let sent = sent.lock().unwrap();
    assert_eq!(sent.len(), 2);
    for (trace, header) in &*sent {
        let header = header.as_deref().unwrap();
        assert!(header.starts_with(&format!("00-{trace}-")), "{header}");
    }
    assert_ne!(sent[0].0, sent[1].0);
}
