//! A collector: an HTTP server on loopback that decodes OTLP.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) spans: Vec<Span>,
    pub(crate) metrics: Vec<Metric>,
    pub(crate) logs: Vec<LogRecord>,
}

type Shared = Arc<Mutex<Received>>;

pub(crate) struct Receiver {
    pub(crate) url: String,
    received: Shared,
    _stop: oneshot::Sender<()>,
}

impl Receiver {
    /// Starts on a thread of its own: exporters block theirs.
    pub(crate) fn start() -> Self {
        let received = Shared::default();
        let (at, listens) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let state = received.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                at.send(listener.local_addr().unwrap()).unwrap();
                let app = Router::new()
                    .route("/v1/traces", post(traces))
                    .route("/v1/metrics", post(metrics))
                    .route("/v1/logs", post(logs))
                    .with_state(state);
                tokio::select! {
                    served = async { axum::serve(listener, app).await } => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        let url = format!("http://{}", listens.recv().unwrap());
        Self {
            url,
            received,
            _stop: stop,
        }
    }

    pub(crate) fn take(&self) -> Received {
        std::mem::take(&mut *self.received.lock().unwrap())
    }
}

async fn traces(State(received): State<Shared>, body: Bytes) {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    let scopes = request
        .resource_spans
        .into_iter()
        .flat_map(|resource| resource.scope_spans);
    received
        .lock()
        .unwrap()
        .spans
        .extend(scopes.flat_map(|scope| scope.spans));
}

async fn metrics(State(received): State<Shared>, body: Bytes) {
    let request = ExportMetricsServiceRequest::decode(body).unwrap();
    let scopes = request
        .resource_metrics
        .into_iter()
        .flat_map(|resource| resource.scope_metrics);
    received
        .lock()
        .unwrap()
        .metrics
        .extend(scopes.flat_map(|scope| scope.metrics));
}

async fn logs(State(received): State<Shared>, body: Bytes) {
    let request = ExportLogsServiceRequest::decode(body).unwrap();
    let scopes = request
        .resource_logs
        .into_iter()
        .flat_map(|resource| resource.scope_logs);
    received
        .lock()
        .unwrap()
        .logs
        .extend(scopes.flat_map(|scope| scope.log_records));
}
