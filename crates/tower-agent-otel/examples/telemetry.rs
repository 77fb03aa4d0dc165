//! The spans of a run with one tool call, printed as they end.
//!
//! `cargo run --package tower-agent-otel --example telemetry`

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use serde_json::json;
use tower_agent::{Agent, BoxError, Tool};
use tower_agent_otel::OpenTelemetry;
use tower_agent_test::{ScriptedModel, Turn};
use tracing_subscriber::prelude::*;

/// Prints spans; a program would use the exporter of `opentelemetry-otlp`.
#[derive(Debug)]
struct Print;

impl SpanExporter for Print {
    async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
        for span in spans {
            println!("{}", span.name);
            for attribute in span.attributes {
                if attribute.key.as_str().starts_with("gen_ai.") {
                    println!("    {} = {}", attribute.key, attribute.value);
                }
            }
        }
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let tracers = SdkTracerProvider::builder()
        .with_simple_exporter(Print)
        .build();
    let spans = tracing_opentelemetry::layer().with_tracer(tracers.tracer("telemetry"));
    tracing_subscriber::registry().with(spans).init();

    let model = ScriptedModel::new([
        Turn::tool("add", json!([17, 25])),
        Turn::from_text("It is 42."),
    ]);
    let add = Tool::function("add", "Adds two numbers.", |(a, b): (f64, f64)| a + b);
    let agent = Agent::builder(model)
        .name("calculator")
        .tool(add)
        .global_callbacks(OpenTelemetry::new())
        .build()?;
    println!("{}", agent.run("What is 17 + 25?").await?.text());

    tracers.shutdown()?;
    Ok(())
}
