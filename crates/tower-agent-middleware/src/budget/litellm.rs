//! Reads the price table that LiteLLM publishes.

use serde_json::{Map, Value};

use super::model_price::ModelPrice;
use super::price_table::PriceTable;
use tower_agent::error::{Error, ErrorKind, Result};

type Fields = Map<String, Value>;

impl PriceTable {
    /// Returns the prices that come with this crate, in US dollars: those of Anthropic, Azure,
    /// Cerebras, Cohere, DeepSeek, Gemini, Groq, Mistral, Moonshot, OpenAI, Perplexity, xAI and
    /// Z.ai, as LiteLLM 1.110.2 had them on 2026-11-24.
    ///
    /// Prices change. A program that bills by them reads a table of its own with
    /// [`from_litellm`](Self::from_litellm), or sets its models with [`model`](Self::model).
    ///
    /// ```
    /// use tower_agent_middleware::budget::{Limits, PriceTable, UnknownModel};
    ///
    /// let prices = PriceTable::published()?.provider("anthropic");
    /// let limits = Limits::new().cost_at(0.5, prices, UnknownModel::Fail);
    /// # drop(limits);
    /// # Ok::<_, tower_agent::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`from_litellm`](Self::from_litellm) does.
    pub fn published() -> Result<Self> {
        Self::from_litellm(include_str!("../../prices/litellm.json"))
    }

    /// Reads the JSON that LiteLLM publishes as `model_prices_and_context_window.json`, in US
    /// dollars.
    ///
    /// It takes the models that generate text and have a price for input and output tokens. Prices
    /// of cached, cache-written and reasoning tokens, and of long prompts (`.._above_200k_tokens`,
    /// `tiered_pricing`), are used where the table has them. Prices of batches and of service tiers
    /// are not: every call has the standard price. Media are priced by their tokens. A price of 0
    /// is one only of a model that is paid by the token or not at all: one that is paid by the song
    /// or the request is left out, and counts as unknown.
    ///
    /// # Errors
    ///
    /// Fails with [`InvalidRequest`](ErrorKind::InvalidRequest) if the text is not a JSON object or
    /// contains no price.
    pub fn from_litellm(json: &str) -> Result<Self> {
        let entries: Fields = serde_json::from_str(json).map_err(|error| {
            Error::new(
                ErrorKind::InvalidRequest,
                "the price table is not a JSON object",
            )
            .with_source(error)
        })?;
        let mut table = Self::new();
        for (name, entry) in entries {
            let Value::Object(fields) = entry else {
                continue;
            };
            // The first entry of the file describes the format.
            if name == "sample_spec" || !generates_text(&fields) || is_paid_otherwise(&fields) {
                continue;
            }
            if let Some(price) = price(&fields) {
                let provider = fields.get("litellm_provider").and_then(Value::as_str);
                let provider = provider.map(|name| whole_provider(name).to_owned());
                table.insert(name, provider, price);
            }
        }
        if table.is_empty() {
            let message = "the price table contains no model with a price for its tokens";
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        Ok(table)
    }
}

/// Returns the provider of which LiteLLM has one for each kind of model or of request, such as
/// `vertex_ai-anthropic_models` and `bedrock_converse`.
fn whole_provider(name: &str) -> &str {
    match name {
        "bedrock_converse" => "bedrock",
        name if name.starts_with("vertex_ai-") => "vertex_ai",
        name => name,
    }
}

fn generates_text(fields: &Fields) -> bool {
    match fields.get("mode") {
        Some(Value::String(mode)) => matches!(&**mode, "chat" | "completion" | "responses"),
        _ => true,
    }
}

/// Returns whether a model's tokens cost nothing because something else does.
fn is_paid_otherwise(fields: &Fields) -> bool {
    let mut costs = fields
        .iter()
        .filter(|(name, cost)| {
            name.contains("_cost") && cost.as_f64().is_some_and(|cost| cost > 0.0)
        })
        .map(|(name, _)| name.contains("token"))
        .peekable();
    costs.peek().is_some() && costs.all(|is_of_tokens| !is_of_tokens)
}

/// Returns the price of a model, or `None` if a part of it is missing or is not a price.
fn price(fields: &Fields) -> Option<ModelPrice> {
    let mut tiers = tiered(fields)?.into_iter();
    let mut base = match read(fields, "", None) {
        Some(base) => base,
        None => tiers.next().filter(|(above, _)| *above == 0)?.1,
    };
    for above in thresholds(fields) {
        let suffix = format!("_above_{}k_tokens", above / 1000);
        base = base
            .clone()
            .above(above, read(fields, &suffix, Some(&base))?);
    }
    for (above, tier) in tiers.filter(|(above, _)| *above > 0) {
        base = base.above(above, tier);
    }
    // An entry with a wrong price is left out: its model then counts as unknown.
    base.is_valid().then_some(base)
}

/// Returns the prices whose names end with `suffix`; those that are missing are taken from `or`.
fn read(fields: &Fields, suffix: &str, or: Option<&ModelPrice>) -> Option<ModelPrice> {
    let number = |name: &str, or: Option<f64>| match fields.get(&format!("{name}{suffix}")) {
        None | Some(Value::Null) => or,
        // Something else is not a price, which makes the entry invalid.
        Some(other) => Some(other.as_f64().unwrap_or(f64::NAN)),
    };
    let input = number("input_cost_per_token", or.map(|or| or.input))?;
    let output = number("output_cost_per_token", or.map(|or| or.output))?;
    let mut price = ModelPrice::new(input, output);
    price.cache_read = number(
        "cache_read_input_token_cost",
        or.and_then(|or| or.cache_read),
    );
    price.cache_write = number(
        "cache_creation_input_token_cost",
        or.and_then(|or| or.cache_write),
    );
    price.long_cache_write = number(
        "cache_creation_input_token_cost_above_1hr",
        or.and_then(|or| or.long_cache_write),
    );
    price.reasoning = number(
        "output_cost_per_reasoning_token",
        or.and_then(|or| or.reasoning),
    );
    Some(price)
}

/// Returns the numbers of input tokens above which a call has another price.
fn thresholds(fields: &Fields) -> Vec<u64> {
    let names = [
        "input_cost_per_token",
        "output_cost_per_token",
        "cache_read_input_token_cost",
        "cache_creation_input_token_cost",
    ];
    let thresholds = fields.keys().filter_map(|key| {
        let suffix = names.iter().find_map(|name| key.strip_prefix(name))?;
        let thousands = suffix.strip_prefix("_above_")?.strip_suffix("k_tokens")?;
        thousands.parse::<u64>().ok()?.checked_mul(1000)
    });
    let mut all: Vec<_> = thresholds.collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns the prices of `tiered_pricing` and the numbers of input tokens that they start above, or
/// `None` if they are invalid.
fn tiered(fields: &Fields) -> Option<Vec<(u64, ModelPrice)>> {
    let Some(Value::Array(tiers)) = fields.get("tiered_pricing") else {
        return Some(Vec::new());
    };
    let mut prices = Vec::with_capacity(tiers.len());
    for tier in tiers {
        let fields = tier.as_object()?;
        let start = fields.get("range")?.get(0)?.as_f64()?;
        prices.push((start as u64, read(fields, "", None)?));
    }
    prices.sort_by_key(|(above, _)| *above);
    Some(prices)
}
