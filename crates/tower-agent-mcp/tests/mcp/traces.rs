//! One trace on both sides of MCP.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::post;
use opentelemetry::global;
use opentelemetry::trace::{SpanId, SpanKind, Status, TraceContextExt, TracerProvider};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower::ServiceExt;
use tower_agent::{Agent, Error, ErrorKind, Tool};
use tower_agent_mcp::client::{Lifecycle, McpClient};
use tower_agent_mcp::server::McpServer;
use tower_agent_otel::OpenTelemetry;
use tower_agent_providers::{HttpClient, RequestBody};
use tower_agent_test::{ScriptedModel, Turn};
use tracing::subscriber::DefaultGuard;
use tracing::{Instrument, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::prelude::*;

use crate::http::Http;
use crate::serving::client_of;
use crate::support::{LIFECYCLES, Server, ask, connected, serving};

/// The spans of this thread that have ended.
#[derive(Clone, Debug, Default)]
struct Ended(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Ended {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

impl Ended {
    fn record() -> (Self, DefaultGuard) {
        global::set_text_map_propagator(TraceContextPropagator::new());
        let spans = Self::default();
        let tracers = SdkTracerProvider::builder()
            .with_simple_exporter(spans.clone())
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(tracers.tracer("test"));
        let filter = tracing_subscriber::filter::Targets::new()
            .with_target("mcp", tracing::Level::INFO)
            .with_target("tower_agent_mcp", tracing::Level::INFO)
            .with_target("tower_agent_otel", tracing::Level::INFO);
        let subscriber = tracing_subscriber::registry().with(layer.with_filter(filter));
        (spans, tracing::subscriber::set_default(subscriber))
    }

    fn all(&self, name: &str) -> Vec<SpanData> {
        let spans = self.0.lock().unwrap();
        spans
            .iter()
            .filter(|span| span.name == name)
            .cloned()
            .collect()
    }

    /// Returns the only span of this name.
    fn one(&self, name: &str) -> SpanData {
        let mut spans = self.all(name);
        assert_eq!(spans.len(), 1, "{name}: {:?}", self.names());
        spans.remove(0)
    }

    fn of_kind(&self, name: &str, kind: SpanKind) -> SpanData {
        let mut spans = self.all(name);
        spans.retain(|span| span.span_kind == kind);
        assert_eq!(spans.len(), 1, "{name}: {:?}", self.names());
        spans.remove(0)
    }

    fn names(&self) -> Vec<String> {
        let spans = self.0.lock().unwrap();
        spans.iter().map(|span| span.name.to_string()).collect()
    }
}

fn attribute(span: &SpanData, name: &str) -> Option<String> {
    let mut attributes = span.attributes.iter();
    let found = attributes.find(|attribute| attribute.key.as_str() == name)?;
    Some(found.value.to_string())
}

fn assert_child(child: &SpanData, parent: &SpanData) {
    let names = (&child.name, &parent.name);
    assert_eq!(
        (child.parent_span_id, child.span_context.trace_id()),
        (
            parent.span_context.span_id(),
            parent.span_context.trace_id()
        ),
        "{names:?}"
    );
}

/// Passes a request on in a span of its own, whose name begins with `name`.
fn spanned(app: Router, name: &'static str) -> Router {
    let layer = axum::middleware::from_fn(
        move |request: axum::extract::Request, next: axum::middleware::Next| {
            let path = request.uri().path().to_owned();
            let span = info_span!(target: "mcp", "http", otel.name = format!("{name} {path}"));
            next.run(request).instrument(span)
        },
    );
    app.layer(layer)
}

/// An agent that asks the agent `clerk` of an MCP server, over HTTP.
async fn front(lifecycle: Lifecycle) -> (Agent, McpClient, Http) {
    let clerk = ScriptedModel::new([Turn::from_text("Three.")]);
    let clerk = Agent::builder(clerk)
        .name("clerk")
        .global_callbacks(OpenTelemetry::new())
        .build()
        .unwrap();
    let app = Router::new().route_service("/mcp", serving(clerk).into_http());
    let http = Http::serve(spanned(app, "inner")).await;
    let client = connected(http.client().lifecycle(lifecycle)).await;
    let model = ScriptedModel::new([
        Turn::tool("clerk", json!({ "request": "How many?" })),
        Turn::from_text("There are three."),
    ]);
    let agent = Agent::builder(model)
        .name("front")
        .tools(client.tools().await)
        .global_callbacks(OpenTelemetry::new())
        .build()
        .unwrap();
    (agent, client, http)
}

#[tokio::test]
async fn one_trace_from_a_request_through_an_agent_a_server_its_agent_and_its_model() {
    for lifecycle in LIFECYCLES {
        let (spans, _guard) = Ended::record();
        let (agent, client, _inner) = front(lifecycle).await;
        let app = Router::new().route(
            "/ask",
            post(async move || agent.run("How many?").await.unwrap().text()),
        );
        let http = Http::serve(spanned(app, "outer")).await;
        let request = http::Request::post(format!("http://{}/ask", http.address))
            .body(RequestBody::default())
            .unwrap();
        let answer = HttpClient::new().unwrap().oneshot(request).await.unwrap();
        assert!(answer.status().is_success());
        client.close().await;

        let outer = spans.one("outer /ask");
        let front = spans.one("invoke_agent front");
        let tool = spans.one("execute_tool clerk");
        let sent = spans.of_kind("tools/call clerk", SpanKind::Client);
        let served = spans.of_kind("tools/call clerk", SpanKind::Server);
        let clerk = spans.one("invoke_agent clerk");
        assert_child(&front, &outer);
        assert_child(&tool, &front);
        assert_child(&sent, &tool);
        assert_child(&served, &sent);
        assert_child(&clerk, &served);
        let models = spans.all("chat");
        let inner: Vec<_> = models
            .iter()
            .filter(|model| model.parent_span_id == clerk.span_context.span_id())
            .collect();
        assert_eq!((models.len(), inner.len()), (3, 1));
        assert_child(inner[0], &clerk);

        // The HTTP request that brought the call is told as a link.
        let brought = spans.all("inner /mcp");
        let linked = served.links.iter().map(|link| link.span_context.span_id());
        let linked: Vec<_> = linked.collect();
        assert_eq!(linked.len(), 1);
        assert!(
            brought
                .iter()
                .any(|http| http.span_context.span_id() == linked[0])
        );

        let version = match lifecycle {
            Lifecycle::Initialize => "2025-11-25",
            _ => "2026-07-28",
        };
        for span in [&sent, &served] {
            let told = |name| attribute(span, name).unwrap_or_default();
            assert_eq!(told("mcp.method.name"), "tools/call");
            assert_eq!(told("gen_ai.tool.name"), "clerk");
            assert_eq!(told("gen_ai.operation.name"), "execute_tool");
            assert_eq!(told("mcp.protocol.version"), version);
            assert_eq!(told("network.transport"), "tcp");
            assert_eq!(span.status, Status::Unset);
        }
        assert_eq!(
            attribute(&sent, "server.address").as_deref(),
            Some("127.0.0.1")
        );
        let mut attributes = sent.attributes.iter();
        let port = attributes.find(|attribute| attribute.key.as_str() == "server.port");
        let port = port.map(|port| &port.value);
        assert!(
            matches!(port, Some(opentelemetry::Value::I64(_))),
            "{port:?}"
        );
    }
}

#[tokio::test]
async fn a_trace_goes_on_over_a_stream_where_no_http_carries_it() {
    for lifecycle in LIFECYCLES {
        let (spans, _guard) = Ended::record();
        let add = Tool::function("add", "Adds.", |_: Value| "3");
        let server = McpServer::builder("test", "1.0.0")
            .tool(add)
            .build()
            .unwrap();
        let client = connected(client_of(&server).lifecycle(lifecycle)).await;
        let caller = info_span!(target: "mcp", "caller");
        ask(&client, "add", json!({}))
            .instrument(caller.clone())
            .await
            .unwrap();
        drop(caller);
        let sent = spans.of_kind("tools/call add", SpanKind::Client);
        assert_child(&sent, &spans.one("caller"));
        assert_child(&spans.of_kind("tools/call add", SpanKind::Server), &sent);
    }
}

#[tokio::test]
async fn without_a_trace_in_meta_the_http_request_is_the_parent() {
    for lifecycle in LIFECYCLES {
        let (spans, _guard) = Ended::record();
        // A client of rmcp writes none.
        let (_, client, http) = front(lifecycle).await;
        client.close().await;
        let url = format!("http://{}/mcp", http.address);
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": "clerk", "arguments": { "request": "How many?" }, "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { "name": "bare", "version": "1" },
                "io.modelcontextprotocol/clientCapabilities": {},
            } },
        });
        let request = http::Request::post(url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", "clerk")
            .body(RequestBody::from(bytes::Bytes::from(body.to_string())))
            .unwrap();
        let answer = HttpClient::new().unwrap().oneshot(request).await.unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
        let body = http_body_util::BodyExt::collect(answer.into_body()).await;
        let body = String::from_utf8(body.unwrap().to_bytes().to_vec()).unwrap();
        assert!(body.contains("Three."), "{body}");
        let served = spans.of_kind("tools/call clerk", SpanKind::Server);
        let brought = spans.all("inner /mcp");
        let parents: Vec<_> = brought
            .iter()
            .filter(|http| http.span_context.span_id() == served.parent_span_id)
            .collect();
        assert_eq!(parents.len(), 1);
        assert_child(&spans.one("invoke_agent clerk"), &served);
    }
}

#[tokio::test]
async fn spans_tell_how_requests_have_failed() {
    let (spans, _guard) = Ended::record();
    let fails = Tool::function("fails", "Fails.", |_: Value| {
        Err::<(), _>(Error::new(ErrorKind::Tool, "no"))
    });
    let never = Arc::new(Notify::new());
    let began = never.clone();
    let waits = Tool::function("waits", "Waits.", move |_: Value| {
        began.notify_one();
        std::future::pending::<&str>()
    });
    let server = McpServer::builder("test", "1.0.0")
        .tools([fails, waits])
        .build()
        .unwrap();
    let client = connected(client_of(&server)).await;
    let failed = ask(&client, "fails", json!({})).await.unwrap();
    assert!(failed.is_error());
    for kind in [SpanKind::Client, SpanKind::Server] {
        let span = spans.of_kind("tools/call fails", kind);
        assert_eq!(
            attribute(&span, "error.type").as_deref(),
            Some("tool_error")
        );
        assert!(matches!(span.status, Status::Error { .. }));
    }

    tokio::select! {
        _ = ask(&client, "waits", json!({})) => unreachable!(),
        () = never.notified() => {}
    }
    let dropped = spans.of_kind("tools/call waits", SpanKind::Client);
    assert_eq!(
        attribute(&dropped, "error.type").as_deref(),
        Some("cancelled")
    );

    // The name that a client makes up is in no span.
    let rejecting =
        Server::new(async |_, _| Err(rmcp::model::ErrorData::invalid_params("not today", None)));
    let client = rejecting.connect(Lifecycle::Discover).await;
    ask(&client, "echo", json!({})).await.unwrap_err();
    let rejected = spans.of_kind("tools/call echo", SpanKind::Client);
    for name in ["error.type", "rpc.response.status_code"] {
        assert_eq!(attribute(&rejected, name).as_deref(), Some("-32602"));
    }
}

#[tokio::test]
async fn the_http_requests_of_a_call_are_made_in_its_span() {
    let (spans, _guard) = Ended::record();
    let server = serving(
        Agent::builder(ScriptedModel::new([Turn::from_text("Yes.")]))
            .name("clerk")
            .build()
            .unwrap(),
    );
    let app = Router::new().route_service("/mcp", server.into_http());
    let http = Http::serve(app).await;
    let current: Arc<Mutex<Vec<_>>> = Arc::default();
    let seen = current.clone();
    let service = tower::ServiceBuilder::new()
        .map_request(move |request: http::Request<RequestBody>| {
            let context = tracing::Span::current().context();
            let id = context.span().span_context().span_id();
            seen.lock().unwrap().push(id);
            request
        })
        .service(HttpClient::new().unwrap());
    let client = McpClient::http(format!("http://{}/mcp", http.address), service)
        .lifecycle(Lifecycle::Initialize)
        .connect()
        .await
        .unwrap();
    ask(&client, "clerk", json!({ "request": "Is it?" }))
        .await
        .unwrap();
    let sent = spans.of_kind("tools/call clerk", SpanKind::Client);
    let current = current.lock().unwrap();
    assert!(current.contains(&sent.span_context.span_id()));
}

#[tokio::test]
async fn a_trace_that_is_none_begins_a_new_one() {
    for sent in [json!("no trace"), json!(7), json!("00-0-0-00"), json!(null)] {
        let (spans, _guard) = Ended::record();
        let add = Tool::function("add", "Adds.", |_: Value| "3");
        let server = McpServer::builder("test", "1.0.0")
            .tool(add)
            .build()
            .unwrap();
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move { server.serve(theirs).await });
        let peer = ().serve(ours).await.unwrap();
        let mut call = CallToolRequestParams::new("add");
        call.meta = Some(serde_json::from_value(json!({ "traceparent": sent })).unwrap());
        peer.call_tool(call).await.unwrap();
        let served = spans.one("tools/call add");
        assert_eq!(served.parent_span_id, SpanId::INVALID);
    }
}
