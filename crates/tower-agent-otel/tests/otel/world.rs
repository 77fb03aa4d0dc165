//! A program that exports to a collector.

use std::time::Duration;

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
use crate::registry;

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A collector, and exporters to it.
pub(crate) struct World {
    receiver: Receiver,
    exporters: Exporters,
}

impl World {
    /// Exports what this thread does.
    pub(crate) fn new() -> Self {
        let receiver = Receiver::start();
        Self {
            exporters: Exporters::to(&receiver.url),
            receiver,
        }
    }

    /// Returns another subscriber that exports to the same collector.
    pub(crate) fn subscriber(
        &self,
    ) -> impl Subscriber + for<'a> LookupSpan<'a> + Send + Sync + use<> {
        subscriber(&self.exporters.providers)
    }

    pub(crate) fn telemetry(&self) -> OpenTelemetry {
        self.exporters.providers.telemetry()
    }

    /// Returns what the collector has received since the last time, which is as the conventions
    /// say.
    pub(crate) fn received(&self) -> Data {
        self.exporters.providers.flush();
        let data = self.receiver.take().into();
        registry::check(&data);
        data
    }

    pub(crate) fn spans(&self) -> Spans {
        self.received().spans
    }
}

/// Exports what this thread does, to a collector of this process or another.
pub(crate) struct Exporters {
    pub(crate) providers: Providers,
    _subscriber: DefaultGuard,
}

impl Exporters {
    pub(crate) fn to(url: &str) -> Self {
        let to = |path: &str| format!("{url}/v1/{path}");
        let spans = SpanExporter::builder()
            .with_http()
            .with_endpoint(to("traces"));
        // Nothing is left out, however much there is at once.
        let all = BatchConfigBuilder::default()
            .with_max_queue_size(1 << 20)
            .build();
        let spans = BatchSpanProcessor::builder(spans.build().unwrap())
            .with_batch_config(all)
            .build();
        let tracers = SdkTracerProvider::builder()
            .with_span_processor(spans)
            .build();
        let metrics = MetricExporter::builder()
            .with_http()
            .with_endpoint(to("metrics"));
        // Only when it is told to, however long a test takes.
        let metrics = PeriodicReader::builder(metrics.build().unwrap()).with_interval(A_DAY);
        let meters = SdkMeterProvider::builder()
            .with_reader(metrics.build())
            .build();
        let logs = LogExporter::builder().with_http().with_endpoint(to("logs"));
        let loggers = SdkLoggerProvider::builder()
            .with_batch_exporter(logs.build().unwrap())
            .build();

        let providers = Providers {
            tracers,
            meters,
            loggers,
        };
        let subscriber = tracing::subscriber::set_default(subscriber(&providers));
        Self {
            providers,
            _subscriber: subscriber,
        }
    }
}

#[derive(Clone)]
pub(crate) struct Providers {
    tracers: SdkTracerProvider,
    meters: SdkMeterProvider,
    loggers: SdkLoggerProvider,
}

impl Providers {
    pub(crate) fn telemetry(&self) -> OpenTelemetry {
        OpenTelemetry::new().meter_provider(&self.meters)
    }

    pub(crate) fn flush(&self) {
        self.tracers.force_flush().unwrap();
        self.meters.force_flush().unwrap();
        self.loggers.force_flush().unwrap();
    }
}

fn subscriber(
    providers: &Providers,
) -> impl Subscriber + for<'a> LookupSpan<'a> + Send + Sync + use<> {
    let logs = OpenTelemetryTracingBridge::new(&providers.loggers);
    spans(&providers.tracers).with(logs.with_filter(ours(tracing::Level::INFO)))
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
    tracing_subscriber::registry().with(spans.with_filter(ours(tracing::Level::TRACE)))
}

/// The HTTP client of an exporter has spans of its own.
fn ours(level: tracing::Level) -> Targets {
    ["otel", "tower_agent", "tower_agent_otel"]
        .into_iter()
        .fold(Targets::new(), |all, name| all.with_target(name, level))
}
