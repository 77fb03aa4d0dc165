//! A program that exports to a collector.

use opentelemetry::trace::TracerProvider;
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_otlp::{LogExporter, MetricExporter, SpanExporter, WithExportConfig};
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider};
use tower_agent_otel::OpenTelemetry;
use tracing::Subscriber;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;

use crate::received::{Data, Spans};
use crate::receiver::Receiver;

pub(crate) struct World {
    receiver: Receiver,
    tracers: SdkTracerProvider,
    meters: SdkMeterProvider,
    loggers: SdkLoggerProvider,
    _subscriber: DefaultGuard,
}

impl World {
    /// Exports what this thread does.
    pub(crate) fn new() -> Self {
        let receiver = Receiver::start();
        let to = |path: &str| format!("{}/v1/{path}", receiver.url);
        let spans = SpanExporter::builder().with_http().with_endpoint(to("traces"));
        // Nothing is left out, however much there is at once.
        let all = BatchConfigBuilder::default().with_max_queue_size(1 << 20).build();
        let spans =
            BatchSpanProcessor::builder(spans.build().unwrap()).with_batch_config(all).build();
        let tracers = SdkTracerProvider::builder().with_span_processor(spans).build();
        let metrics = MetricExporter::builder().with_http().with_endpoint(to("metrics"));
        let metrics = PeriodicReader::builder(metrics.build().unwrap()).build();
        let meters = SdkMeterProvider::builder().with_reader(metrics).build();
        let logs = LogExporter::builder().with_http().with_endpoint(to("logs"));
        let loggers =
            SdkLoggerProvider::builder().with_batch_exporter(logs.build().unwrap()).build();

        let subscriber = tracing::subscriber::set_default(subscriber(&tracers, &loggers));
        Self { receiver, tracers, meters, loggers, _subscriber: subscriber }
    }

    /// Returns another subscriber that exports to the same collector.
    pub(crate) fn subscriber(
        &self,
    ) -> impl Subscriber + for<'a> LookupSpan<'a> + Send + Sync + use<> {
        subscriber(&self.tracers, &self.loggers)
    }

    pub(crate) fn telemetry(&self) -> OpenTelemetry {
        OpenTelemetry::new().meter_provider(&self.meters)
    }

    /// Returns what the collector has received since the last time.
    pub(crate) fn received(&self) -> Data {
        self.tracers.force_flush().unwrap();
        self.meters.force_flush().unwrap();
        self.loggers.force_flush().unwrap();
        self.receiver.take().into()
    }

    pub(crate) fn spans(&self) -> Spans {
        self.received().spans
    }
}

fn subscriber(
    tracers: &SdkTracerProvider,
    loggers: &SdkLoggerProvider,
) -> impl Subscriber + for<'a> LookupSpan<'a> + Send + Sync + use<> {
    spans(tracers).with(OpenTelemetryTracingBridge::new(loggers).with_filter(ours()))
}

/// Returns a subscriber that exports spans.
pub(crate) fn spans(
    tracers: &SdkTracerProvider,
) -> impl Subscriber + for<'a> LookupSpan<'a> + Send + Sync + use<> {
    let spans = tracing_opentelemetry::layer()
        .with_tracer(tracers.tracer("test"))
        .with_location(false)
        .with_threads(false)
        .with_target(false);
    tracing_subscriber::registry().with(spans.with_filter(ours()))
}

/// The HTTP client of an exporter has spans of its own.
fn ours() -> Targets {
    Targets::new()
        .with_target("otel", tracing::Level::TRACE)
        .with_target("tower_agent", tracing::Level::TRACE)
        .with_target("tower_agent_otel", tracing::Level::TRACE)
}
