//! The conventions that all tests hold what they receive against.
//!
//! Transcribed from `open-telemetry/semantic-conventions-genai`: `model/gen-ai/spans.yaml` and
//! `metrics.yaml` at revision `024a4f944a1291fcb627c9c47da69e79868dd15e`, which `src/names.rs` is
//! pinned to; `token-metrics.yaml` at `066d4a7f356f8600de6f10c42874626ab88692fb`; the types from
//! `registry.yaml` at `002c8a6ea1c8a42b14a4527db83b3cabcded610a`, but for
//! `gen_ai.usage.cache_write.input_tokens`, which was `cache_creation` then, and for
//! `gen_ai.request.reasoning.level`, which is younger. `enduser.id`, `error.type` and `server.*`
//! are of the general conventions 1.44.

use std::collections::BTreeSet;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::metrics::v1::metric::Data as Points;
use opentelemetry_proto::tonic::trace::v1::Span;

use crate::received::{Data, Look};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Type {
    Boolean,
    Double,
    Int,
    String,
    Strings,
    /// Structured; where that is not possible, as in `tracing`, a JSON text.
    Json,
}

use Type::{Boolean, Double, Int, Json, String as Text, Strings};

/// The attributes that the crate writes, and their types.
const TYPES: &[(&str, Type)] = &[
    ("enduser.id", Text),
    ("error.type", Text),
    ("gen_ai.agent.description", Text),
    ("gen_ai.agent.name", Text),
    ("gen_ai.conversation.id", Text),
    ("gen_ai.input.messages", Json),
    ("gen_ai.operation.name", Text),
    ("gen_ai.output.messages", Json),
    ("gen_ai.output.type", Text),
    ("gen_ai.provider.name", Text),
    ("gen_ai.request.max_tokens", Int),
    ("gen_ai.request.model", Text),
    ("gen_ai.request.reasoning.level", Text),
    ("gen_ai.request.seed", Int),
    ("gen_ai.request.stop_sequences", Strings),
    ("gen_ai.request.stream", Boolean),
    ("gen_ai.request.temperature", Double),
    ("gen_ai.request.top_p", Double),
    ("gen_ai.response.finish_reasons", Strings),
    ("gen_ai.response.id", Text),
    ("gen_ai.response.model", Text),
    ("gen_ai.response.time_to_first_chunk", Double),
    ("gen_ai.system_instructions", Json),
    ("gen_ai.token.modality", Text),
    ("gen_ai.tool.call.arguments", Json),
    ("gen_ai.tool.call.id", Text),
    ("gen_ai.tool.call.result", Json),
    ("gen_ai.tool.definitions", Json),
    ("gen_ai.tool.description", Text),
    ("gen_ai.tool.name", Text),
    ("gen_ai.tool.type", Text),
    ("gen_ai.usage.cache_read.input_tokens", Int),
    ("gen_ai.usage.cache_write.input_tokens", Int),
    ("gen_ai.usage.input_tokens", Int),
    ("gen_ai.usage.output_tokens", Int),
    ("gen_ai.usage.reasoning.output_tokens", Int),
    ("gen_ai.workflow.name", Text),
    ("server.address", Text),
    ("server.port", Int),
];

/// Those of all spans. A user is of the general conventions, which any span may have.
const OF_ALL: &[&str] = &[
    "enduser.id",
    "error.type",
    "gen_ai.conversation.id",
    "gen_ai.operation.name",
];

/// Those of each operation: with a star what the conventions require, and with a plus what they do
/// not list, and a backend reads.
const SPANS: &[(&str, &[&str])] = &[
    (
        "chat",
        &[
            "gen_ai.input.messages",
            "gen_ai.output.messages",
            "gen_ai.output.type",
            "gen_ai.provider.name",
            "gen_ai.request.max_tokens",
            "gen_ai.request.model",
            "gen_ai.request.reasoning.level",
            "gen_ai.request.seed",
            "gen_ai.request.stop_sequences",
            "gen_ai.request.stream",
            "gen_ai.request.temperature",
            "gen_ai.request.top_p",
            "gen_ai.response.finish_reasons",
            "gen_ai.response.id",
            "gen_ai.response.model",
            "gen_ai.response.time_to_first_chunk",
            "gen_ai.system_instructions",
            "gen_ai.tool.definitions",
            "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.cache_write.input_tokens",
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.output_tokens",
            "gen_ai.usage.reasoning.output_tokens",
            "server.address",
            "server.port",
        ],
    ),
    (
        "execute_tool",
        &[
            "gen_ai.agent.name",
            "gen_ai.tool.call.arguments",
            "gen_ai.tool.call.id",
            "gen_ai.tool.call.result",
            "gen_ai.tool.description",
            "*gen_ai.tool.name",
            "gen_ai.tool.type",
        ],
    ),
    (
        "invoke_agent",
        &[
            "gen_ai.agent.description",
            "*gen_ai.agent.name",
            "gen_ai.input.messages",
            "gen_ai.output.messages",
            "gen_ai.response.finish_reasons",
            "+gen_ai.usage.cache_read.input_tokens",
            "+gen_ai.usage.cache_write.input_tokens",
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.output_tokens",
        ],
    ),
    (
        "invoke_workflow",
        &[
            "gen_ai.input.messages",
            "gen_ai.output.messages",
            "*gen_ai.workflow.name",
        ],
    ),
];

/// Those of the metrics of a model call.
const OF_A_MODEL: &[&str] = &[
    "*gen_ai.operation.name",
    "*gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "server.address",
    "server.port",
];
const OF_A_TOOL: &[&str] = &["gen_ai.agent.name", "*gen_ai.tool.name", "gen_ai.tool.type"];
const OF_AN_AGENT: &[&str] = &["gen_ai.agent.name"];
const OF_A_WORKFLOW: &[&str] = &["gen_ai.workflow.name"];
const FAILED: &[&str] = &["error.type"];
const OF_TOKENS: &[&str] = &["*gen_ai.token.modality"];

/// The name of a metric, its unit, and its attributes. A unit in braces with a plus is a counter's,
/// any other a histogram's.
const METRICS: &[(&str, &str, &[&[&str]])] = &[
    (
        "gen_ai.client.inference.duration",
        "s",
        &[OF_A_MODEL, FAILED],
    ),
    (
        "gen_ai.client.inference.operation.input_tokens",
        "{token}",
        &[OF_A_MODEL, FAILED],
    ),
    (
        "gen_ai.client.inference.operation.output_tokens",
        "{token}",
        &[OF_A_MODEL, FAILED],
    ),
    (
        "gen_ai.client.inference.time_per_output_chunk",
        "s",
        &[OF_A_MODEL],
    ),
    (
        "gen_ai.client.inference.time_to_first_chunk",
        "s",
        &[OF_A_MODEL],
    ),
    (
        "gen_ai.client.inference.usage.cache_read.input_tokens",
        "+{token}",
        &[OF_A_MODEL, OF_TOKENS],
    ),
    (
        "gen_ai.client.inference.usage.cache_write.input_tokens",
        "+{token}",
        &[OF_A_MODEL, OF_TOKENS],
    ),
    (
        "gen_ai.client.inference.usage.input_tokens",
        "+{token}",
        &[OF_A_MODEL, OF_TOKENS],
    ),
    (
        "gen_ai.client.inference.usage.output_tokens",
        "+{token}",
        &[OF_A_MODEL, OF_TOKENS],
    ),
    (
        "gen_ai.client.inference.usage.reasoning.output_tokens",
        "+{token}",
        &[OF_A_MODEL, OF_TOKENS],
    ),
    ("gen_ai.execute_tool.duration", "s", &[OF_A_TOOL, FAILED]),
    ("gen_ai.invoke_agent.duration", "s", &[OF_AN_AGENT, FAILED]),
    (
        "gen_ai.invoke_agent.inference_calls",
        "{inference_call}",
        &[OF_AN_AGENT],
    ),
    (
        "gen_ai.invoke_agent.tool_calls",
        "{tool_call}",
        &[OF_AN_AGENT],
    ),
    (
        "gen_ai.invoke_workflow.duration",
        "s",
        &[OF_A_WORKFLOW, FAILED],
    ),
];

/// Of the crate itself, and of the OpenInference conventions.
const OTHERS: &[&str] = &[
    "tower_agent.",
    "input.value",
    "output.value",
    "llm.token_count.",
];

/// CLIENT, in the protocol.
const CLIENT: i32 = 3;
const INTERNAL: i32 = 1;

/// Panics at what is not as the conventions say.
pub(crate) fn check(data: &Data) {
    data.spans.0.iter().for_each(check_span);
    data.metrics.0.iter().for_each(check_metric);
}

/// Returns the names of the conventions' attributes.
pub(crate) fn names(attributes: &[KeyValue]) -> BTreeSet<&str> {
    let names = attributes.iter().map(|attribute| &*attribute.key);
    names
        .filter(|name| TYPES.iter().any(|(known, _)| known == name))
        .collect()
}

/// Returns the names of all attributes that the crate writes.
pub(crate) fn all_names() -> BTreeSet<&'static str> {
    TYPES.iter().map(|(name, _)| *name).collect()
}

/// Returns the names of all metrics.
pub(crate) fn all_metrics() -> BTreeSet<&'static str> {
    METRICS.iter().map(|(name, ..)| *name).collect()
}

fn check_span(span: &Span) {
    let Some(operation) = span.get("gen_ai.operation.name") else {
        // Of the test's own.
        return;
    };
    let found = SPANS.iter().find(|(known, _)| *known == operation);
    let (_, listed) = found.unwrap_or_else(|| panic!("no operation: {operation}"));
    check_attributes(&span.name, &span.attributes, &[OF_ALL, listed]);
    let is_called = span.get("gen_ai.response.finish_reasons").is_some();
    if operation == "chat" && span.kind == CLIENT {
        assert!(span.get("gen_ai.provider.name").is_some(), "{span:?}");
    } else {
        assert_eq!(span.kind, INTERNAL, "{}", span.name);
        assert_eq!(span.get("server.address"), None, "{}", span.name);
        assert!(operation != "chat" || !is_called, "{span:?}");
    }
    let name = ["request.model", "tool.name", "agent.name", "workflow.name"]
        .iter()
        .filter(|key| operation != "execute_tool" || **key == "tool.name")
        .find_map(|key| span.get(&format!("gen_ai.{key}")));
    let expected = match name {
        // One that the model has made up.
        Some(_) if span.error().as_deref() == Some("unknown_tool") => "execute_tool _OTHER".into(),
        Some(name) => format!("{operation} {name}"),
        None => operation,
    };
    assert_eq!(span.name, expected);
}

fn check_metric(metric: &Metric) {
    let found = METRICS.iter().find(|(name, ..)| *name == metric.name);
    let (_, unit, listed) = found.unwrap_or_else(|| panic!("no metric: {}", metric.name));
    assert_eq!(metric.unit, unit.trim_start_matches('+'), "{}", metric.name);
    let points: Vec<_> = match metric.data.as_ref().unwrap() {
        Points::Histogram(histogram) => {
            assert!(!unit.starts_with('+'), "{}", metric.name);
            let points = histogram.data_points.iter();
            points.map(|point| &point.attributes).collect()
        }
        Points::Sum(sum) => {
            assert!(unit.starts_with('+') && sum.is_monotonic, "{}", metric.name);
            let points = sum.data_points.iter();
            points.map(|point| &point.attributes).collect()
        }
        other => panic!("{}: {other:?}", metric.name),
    };
    for attributes in points {
        check_attributes(&metric.name, attributes, listed);
        // A metric names nobody, and nothing that there is any number of.
        let names = names(attributes);
        assert!(!names.contains("gen_ai.conversation.id") && !names.contains("enduser.id"));
    }
}

/// Each attribute is listed, has its type, and is there once; those that are required are there.
fn check_attributes(of: &str, attributes: &[KeyValue], listed: &[&[&str]]) {
    let listed: Vec<_> = listed.iter().flat_map(|names| names.iter()).collect();
    let mut seen = BTreeSet::new();
    for attribute in attributes {
        let key = &*attribute.key;
        assert!(seen.insert(key), "{of} has `{key}` twice: {attributes:?}");
        if OTHERS.iter().any(|other| key.starts_with(other)) {
            continue;
        }
        let is_listed = listed
            .iter()
            .any(|name| name.trim_matches(['*', '+']) == key);
        assert!(is_listed, "{of} has `{key}`");
        let expected = TYPES.iter().find(|(name, _)| *name == key);
        let (_, expected) = expected.unwrap_or_else(|| panic!("`{key}` has no type"));
        let value = attribute
            .value
            .as_ref()
            .and_then(|value| value.value.as_ref());
        assert!(
            is_of(value.unwrap(), *expected),
            "{of}: `{key}` is {value:?}"
        );
    }
    for required in listed.iter().filter_map(|name| name.strip_prefix('*')) {
        assert!(seen.contains(required), "{of} lacks `{required}`");
    }
}

fn is_of(value: &Value, expected: Type) -> bool {
    match value {
        Value::BoolValue(_) => expected == Boolean,
        Value::DoubleValue(_) => expected == Double,
        Value::IntValue(_) => expected == Int,
        Value::StringValue(text) if expected == Json => {
            serde_json::from_str::<serde_json::Value>(text).is_ok()
        }
        Value::StringValue(_) => expected == Text,
        Value::ArrayValue(list) => {
            let mut values = list.values.iter();
            let is_text = |value: &Value| matches!(value, Value::StringValue(_));
            expected == Strings && values.all(|value| value.value.as_ref().is_some_and(is_text))
        }
        _ => false,
    }
}
