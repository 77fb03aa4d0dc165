use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use tower_agent::Usage;

use crate::names::{UNKNOWN_MODALITY, attribute, metric};

/// The instruments, with the bounds that the conventions recommend.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) inference_duration: Histogram<f64>,
    pub(crate) time_to_first_chunk: Histogram<f64>,
    pub(crate) time_per_output_chunk: Histogram<f64>,
    pub(crate) tool_duration: Histogram<f64>,
    pub(crate) agent_duration: Histogram<f64>,
    pub(crate) workflow_duration: Histogram<f64>,
    pub(crate) inference_calls: Histogram<u64>,
    pub(crate) tool_calls: Histogram<u64>,
    input_tokens: Histogram<u64>,
    output_tokens: Histogram<u64>,
    usage_input: Counter<u64>,
    usage_output: Counter<u64>,
    usage_cache_read: Counter<u64>,
    usage_cache_write: Counter<u64>,
    usage_reasoning: Counter<u64>,
}

impl Metrics {
    pub(crate) fn new(meter: &Meter) -> Self {
        let seconds = |name, bounds: Vec<f64>, description| {
            let histogram = meter.f64_histogram(name).with_unit("s");
            histogram
                .with_description(description)
                .with_boundaries(bounds)
                .build()
        };
        let counts = |name, unit, bounds: Vec<f64>, description| {
            let histogram = meter.u64_histogram(name).with_unit(unit);
            histogram
                .with_description(description)
                .with_boundaries(bounds)
                .build()
        };
        let tokens = |name, description| {
            meter
                .u64_counter(name)
                .with_unit("{token}")
                .with_description(description)
                .build()
        };
        let (call, run) = (|| doubling(0.01, 14), || doubling(0.1, 13));
        let (few, many) = (|| doubling(1.0, 8), || quadrupling(1.0, 14));
        Self {
            inference_duration: seconds(
                metric::INFERENCE_DURATION,
                call(),
                "Duration of a model call.",
            ),
            time_to_first_chunk: seconds(
                metric::TIME_TO_FIRST_CHUNK,
                call(),
                "Time from a streamed model call to its first chunk.",
            ),
            time_per_output_chunk: seconds(
                metric::TIME_PER_OUTPUT_CHUNK,
                call(),
                "Time from one chunk of a streamed model call to the next.",
            ),
            tool_duration: seconds(
                metric::EXECUTE_TOOL_DURATION,
                call(),
                "Duration of a tool call.",
            ),
            agent_duration: seconds(
                metric::INVOKE_AGENT_DURATION,
                run(),
                "Duration of an agent's call.",
            ),
            workflow_duration: seconds(
                metric::INVOKE_WORKFLOW_DURATION,
                run(),
                "Duration of a team's call.",
            ),
            inference_calls: counts(
                metric::INVOKE_AGENT_INFERENCE_CALLS,
                "{inference_call}",
                few(),
                "Model calls that an agent has made.",
            ),
            tool_calls: counts(
                metric::INVOKE_AGENT_TOOL_CALLS,
                "{tool_call}",
                few(),
                "Tool calls that an agent has made.",
            ),
            input_tokens: counts(
                metric::INFERENCE_INPUT_TOKENS,
                "{token}",
                many(),
                "Input tokens of a model call.",
            ),
            output_tokens: counts(
                metric::INFERENCE_OUTPUT_TOKENS,
                "{token}",
                many(),
                "Output tokens of a model call.",
            ),
            usage_input: tokens(metric::USAGE_INPUT, "Input tokens spent."),
            usage_output: tokens(metric::USAGE_OUTPUT, "Output tokens spent."),
            usage_cache_read: tokens(
                metric::USAGE_CACHE_READ,
                "Input tokens read from the provider's cache.",
            ),
            usage_cache_write: tokens(
                metric::USAGE_CACHE_WRITE,
                "Input tokens written to the provider's cache.",
            ),
            usage_reasoning: tokens(metric::USAGE_REASONING, "Output tokens spent on reasoning."),
        }
    }

    /// Counts the tokens of a model call. The conventions count a call without usage as zero.
    pub(crate) fn count(&self, usage: Usage, attributes: &[KeyValue]) {
        let mut attributes = attributes.to_vec();
        attributes.push(KeyValue::new(attribute::TOKEN_MODALITY, UNKNOWN_MODALITY));
        for (counter, tokens) in [
            (&self.usage_input, usage.input_tokens),
            (&self.usage_output, usage.output_tokens),
            (&self.usage_cache_read, usage.cached_input_tokens),
            (&self.usage_cache_write, usage.cache_write_tokens),
            (&self.usage_reasoning, usage.reasoning_tokens),
        ] {
            counter.add(tokens, &attributes);
        }
    }

    /// Records how many tokens one model call has used.
    pub(crate) fn record_tokens(&self, usage: Usage, attributes: &[KeyValue]) {
        self.input_tokens.record(usage.input_tokens, attributes);
        self.output_tokens.record(usage.output_tokens, attributes);
    }
}

pub(crate) fn record(histogram: &Histogram<f64>, time: Duration, attributes: &[KeyValue]) {
    histogram.record(time.as_secs_f64(), attributes);
}

fn doubling(first: f64, count: i32) -> Vec<f64> {
    (0..count).map(|power| first * 2_f64.powi(power)).collect()
}

fn quadrupling(first: f64, count: i32) -> Vec<f64> {
    (0..count).map(|power| first * 4_f64.powi(power)).collect()
}
