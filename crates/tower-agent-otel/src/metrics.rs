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
        // The SDK's own bounds suit milliseconds: with seconds, most calls would share the lowest
        // bucket.
        let call_bounds = powers(2.0, 0.01, 14);
        let run_bounds = powers(2.0, 0.1, 13);
        let call_count_bounds = powers(2.0, 1.0, 8);
        let token_bounds = powers(4.0, 1.0, 14);
        Self {
            inference_duration: seconds(
                meter,
                metric::INFERENCE_DURATION,
                &call_bounds,
                "Duration of a model call.",
            ),
            time_to_first_chunk: seconds(
                meter,
                metric::TIME_TO_FIRST_CHUNK,
                &call_bounds,
                "Time from a streamed model call to its first chunk.",
            ),
            time_per_output_chunk: seconds(
                meter,
                metric::TIME_PER_OUTPUT_CHUNK,
                &call_bounds,
                "Time from one chunk of a streamed model call to the next.",
            ),
            tool_duration: seconds(
                meter,
                metric::EXECUTE_TOOL_DURATION,
                &call_bounds,
                "Duration of a tool call.",
            ),
            agent_duration: seconds(
                meter,
                metric::INVOKE_AGENT_DURATION,
                &run_bounds,
                "Duration of an agent's call.",
            ),
            workflow_duration: seconds(
                meter,
                metric::INVOKE_WORKFLOW_DURATION,
                &run_bounds,
                "Duration of a team's call.",
            ),
            inference_calls: counts(
                meter,
                metric::INVOKE_AGENT_INFERENCE_CALLS,
                "{inference_call}",
                &call_count_bounds,
                "Model calls that an agent has made.",
            ),
            tool_calls: counts(
                meter,
                metric::INVOKE_AGENT_TOOL_CALLS,
                "{tool_call}",
                &call_count_bounds,
                "Tool calls that an agent has made.",
            ),
            input_tokens: counts(
                meter,
                metric::INFERENCE_INPUT_TOKENS,
                "{token}",
                &token_bounds,
                "Input tokens of a model call.",
            ),
            output_tokens: counts(
                meter,
                metric::INFERENCE_OUTPUT_TOKENS,
                "{token}",
                &token_bounds,
                "Output tokens of a model call.",
            ),
            usage_input: tokens(meter, metric::USAGE_INPUT, "Input tokens spent."),
            usage_output: tokens(meter, metric::USAGE_OUTPUT, "Output tokens spent."),
            usage_cache_read: tokens(
                meter,
                metric::USAGE_CACHE_READ,
                "Input tokens read from the provider's cache.",
            ),
            usage_cache_write: tokens(
                meter,
                metric::USAGE_CACHE_WRITE,
                "Input tokens written to the provider's cache.",
            ),
            usage_reasoning: tokens(
                meter,
                metric::USAGE_REASONING,
                "Output tokens spent on reasoning.",
            ),
        }
    }

    /// Counts the tokens of a model call. The conventions count a call without usage as zero.
    pub(crate) fn count(&self, usage: Usage, attributes: &[KeyValue]) {
        let mut attributes = attributes.to_vec();
        // The conventions split tokens by modality, which a usage of the core does not do.
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

/// Returns whether this is the meter of a program without a provider, which drops what it is given.
/// The API does not say so; but its own meter is the only one without any data, where another has
/// at least the pipeline that it feeds.
pub(crate) fn is_noop(meter: &Meter) -> bool {
    let builder = meter.f64_histogram(metric::INFERENCE_DURATION);
    size_of_val(builder.instrument_provider) == 0
}

pub(crate) fn record(histogram: &Histogram<f64>, time: Duration, attributes: &[KeyValue]) {
    histogram.record(time.as_secs_f64(), attributes);
}

fn seconds(
    meter: &Meter,
    name: &'static str,
    bounds: &[f64],
    description: &'static str,
) -> Histogram<f64> {
    meter
        .f64_histogram(name)
        .with_unit("s")
        .with_description(description)
        .with_boundaries(bounds.to_vec())
        .build()
}

fn counts(
    meter: &Meter,
    name: &'static str,
    unit: &'static str,
    bounds: &[f64],
    description: &'static str,
) -> Histogram<u64> {
    meter
        .u64_histogram(name)
        .with_unit(unit)
        .with_description(description)
        .with_boundaries(bounds.to_vec())
        .build()
}

fn tokens(meter: &Meter, name: &'static str, description: &'static str) -> Counter<u64> {
    meter
        .u64_counter(name)
        .with_unit("{token}")
        .with_description(description)
        .build()
}

/// Returns `count` bounds, each `base` times the one before.
fn powers(base: f64, first: f64, count: i32) -> Vec<f64> {
    (0..count).map(|power| first * base.powi(power)).collect()
}
