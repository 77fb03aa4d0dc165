use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::json::lenient::{count, object, or_default};
use tower_agent::message::Usage;

/// The token usage of a response.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CompletionUsage {
    #[serde(deserialize_with = "count")]
    prompt_tokens: u64,
    #[serde(deserialize_with = "count")]
    completion_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    total_tokens: u64,
    /// The names of other protocols, which some servers have instead.
    #[serde(deserialize_with = "count")]
    input_tokens: u64,
    #[serde(deserialize_with = "count")]
    output_tokens: u64,
    #[serde(deserialize_with = "count")]
    cache_read_input_tokens: u64,
    #[serde(deserialize_with = "object")]
    prompt_tokens_details: Option<PromptDetails>,
    #[serde(deserialize_with = "object")]
    completion_tokens_details: Option<CompletionDetails>,
    /// Set by Mistral.
    #[serde(deserialize_with = "or_default")]
    num_cached_tokens: u64,
    /// Set by Moonshot.
    #[serde(deserialize_with = "count")]
    cached_tokens: u64,
    /// Set by DeepSeek.
    #[serde(deserialize_with = "or_default")]
    prompt_cache_hit_tokens: u64,
    /// Set by OpenRouter, and by Perplexity as an object.
    #[serde(deserialize_with = "stated_cost")]
    cost: Option<f64>,
    /// Set by xAI.
    #[serde(deserialize_with = "or_default")]
    cost_in_usd_ticks: Option<f64>,
}

/// The counts of llama.cpp for an answer whose usage was not asked for.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Timings {
    #[serde(deserialize_with = "count")]
    prompt_n: u64,
    /// Beside those of the prompt.
    #[serde(deserialize_with = "count")]
    cache_n: u64,
    #[serde(deserialize_with = "count")]
    predicted_n: u64,
}

impl From<Timings> for CompletionUsage {
    fn from(timings: Timings) -> Self {
        Self {
            prompt_tokens: timings.prompt_n.saturating_add(timings.cache_n),
            completion_tokens: timings.predicted_n,
            cached_tokens: timings.cache_n,
            ..Self::default()
        }
    }
}

/// The ticks of a US dollar, in which xAI states a cost.
const TICKS: f64 = 1e10;

impl CompletionUsage {
    /// Returns the cost in US dollars, if the server states it.
    pub(super) fn cost(&self) -> Option<f64> {
        let ticks = self.cost_in_usd_ticks.map(|ticks| ticks / TICKS);
        self.cost.or(ticks)
    }
}

fn stated_cost<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let cost = Value::deserialize(deserializer)?;
    Ok(cost.as_f64().or(cost["total_cost"].as_f64()))
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    #[serde(deserialize_with = "count")]
    cached_tokens: u64,
    #[serde(deserialize_with = "count")]
    cache_write_tokens: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    // A part of the output, which is counted there: a server that does not know it may write -1.
    #[serde(deserialize_with = "or_default")]
    reasoning_tokens: u64,
}

impl From<CompletionUsage> for Usage {
    fn from(usage: CompletionUsage) -> Self {
        let input = usage.prompt_tokens_details.unwrap_or_default();
        let reasoning = usage
            .completion_tokens_details
            .unwrap_or_default()
            .reasoning_tokens;
        // Servers that name several of these say the same number in each.
        let cached = input
            .cached_tokens
            .max(usage.num_cached_tokens)
            .max(usage.cached_tokens)
            .max(usage.prompt_cache_hit_tokens)
            .max(usage.cache_read_input_tokens);
        let mut ours = Self::new(
            usage.prompt_tokens.max(usage.input_tokens),
            usage.completion_tokens.max(usage.output_tokens),
        );
        // Few servers count what the cache had beside the prompt: only then is the total the sum of
        // all three, or, without a total, more from the cache than there is.
        let is_apart = match usage.total_tokens {
            0 => cached > ours.input_tokens,
            total => {
                cached > 0 && cached != reasoning && total == ours.total().saturating_add(cached)
            }
        };
        if is_apart {
            ours.input_tokens = ours.input_tokens.saturating_add(cached);
        }
        // xAI counts reasoning beside the completion: only then is the total the sum of all three.
        if usage.total_tokens == ours.total().saturating_add(reasoning) {
            ours.output_tokens = ours.output_tokens.saturating_add(reasoning);
        }
        ours.cached_input_tokens = cached;
        ours.cache_write_tokens = input.cache_write_tokens;
        ours.reasoning_tokens = reasoning;
        ours
    }
}
