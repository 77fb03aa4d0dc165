use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::model_price::ModelPrice;
use tower_agent::error::{Error, ErrorKind};

/// The prices of models. Cloning is O(1).
///
/// A model's price is found by its name:
///
/// 1. The entry with exactly this name.
/// 2. The entry of the provider that the name starts with: `openai/gpt-4o` finds `gpt-4o` of the
///    provider `openai`.
/// 3. The entry that has this name after its provider's prefix: `llama3.1` finds `ollama/llama3.1`.
///    Several such entries count only if their prices are equal.
///
/// Anything else is unknown: no name is shortened or guessed.
///
/// ```
/// use tower_agent_middleware::budget::{Budget, Limits, ModelPrice, PriceTable, UnknownModel};
///
/// // The contents of LiteLLM's `model_prices_and_context_window.json`.
/// let json = r#"{
///     "gpt-4o": {
///         "litellm_provider": "openai",
///         "mode": "chat",
///         "input_cost_per_token": 2.5e-06,
///         "cache_read_input_token_cost": 1.25e-06,
///         "output_cost_per_token": 1e-05
///     }
/// }"#;
/// let prices = PriceTable::from_litellm(json)?
///     .model("our-own-model", ModelPrice::new(1e-6, 2e-6))
///     .default_model("gpt-4o");
/// assert!(prices.price("openai/gpt-4o").is_some());
///
/// let budget = Budget::new(Limits::new().cost_at(0.5, prices, UnknownModel::Fail));
/// # drop(budget);
/// # Ok::<_, tower_agent::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct PriceTable(Arc<PriceEntries>);

#[derive(Clone, Default)]
struct PriceEntries {
    models: HashMap<String, Entry>,
    /// The names of the entries, by their name without their provider's prefix.
    unprefixed: HashMap<String, Vec<String>>,
    default_model: Option<String>,
}

#[derive(Clone)]
struct Entry {
    provider: Option<String>,
    price: ModelPrice,
}

/// The treatment of a model without a price.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum UnknownModel {
    /// The call fails before it runs, with an error of kind
    /// [`InvalidRequest`](ErrorKind::InvalidRequest).
    Fail,
    /// The call is charged this price, and counted in
    /// [`unpriced_calls`](super::Spent::unpriced_calls).
    Assume(ModelPrice),
}

/// A model has no price. Found with [`Error::downcast_ref`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownPrice {
    /// The name of the model; empty if the request names none.
    pub model: String,
}

impl PriceTable {
    /// Creates an empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the price of the model with this name. An entry that it replaces keeps its provider.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>, price: ModelPrice) -> Self {
        let name = name.into();
        let provider = self
            .0
            .models
            .get(&name)
            .and_then(|entry| entry.provider.clone());
        self.insert(name, provider, price);
        self
    }

    /// Sets the model of requests that name none, such as the one that the client is configured
    /// with.
    #[must_use]
    pub fn default_model(mut self, name: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.0).default_model = Some(name.into());
        self
    }

    /// Returns the price of a model.
    #[must_use]
    pub fn price(&self, model: &str) -> Option<&ModelPrice> {
        let PriceEntries {
            models, unprefixed, ..
        } = &*self.0;
        if let Some(entry) = models.get(model) {
            return Some(&entry.price);
        }
        let named = |name: &str| {
            let names = unprefixed.get(name).into_iter().flatten();
            names.filter_map(|name| models.get(name))
        };
        if let Some((provider, name)) = model.split_once('/') {
            let mut of_provider =
                named(name).filter(|entry| entry.provider.as_deref() == Some(provider));
            if let Some(entry) = of_provider.next() {
                return Some(&entry.price);
            }
        }
        let mut prices = named(model).map(|entry| &entry.price);
        let first = prices.next()?;
        // Several providers may serve a model of one name at different prices, and guessing would
        // charge wrongly.
        prices.all(|other| other == first).then_some(first)
    }

    pub(super) fn insert(&mut self, name: String, provider: Option<String>, price: ModelPrice) {
        Arc::make_mut(&mut self.0).insert(name, provider, price);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.models.is_empty()
    }

    /// Returns the name, or that of the default model.
    pub(super) fn or_default<'a>(&'a self, name: Option<&'a str>) -> &'a str {
        name.or(self.0.default_model.as_deref()).unwrap_or_default()
    }
}

impl PriceEntries {
    fn insert(&mut self, name: String, provider: Option<String>, price: ModelPrice) {
        let prefixed = provider
            .as_deref()
            .and_then(|provider| name.strip_prefix(provider)?.strip_prefix('/'));
        let names = self
            .unprefixed
            .entry(prefixed.unwrap_or(&name).to_owned())
            .or_default();
        if !names.contains(&name) {
            names.push(name.clone());
        }
        self.models.insert(name, Entry { provider, price });
    }
}

impl fmt::Debug for PriceTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PriceTable")
            .field("models", &self.0.models.len())
            .field("default_model", &self.0.default_model)
            .finish()
    }
}

impl fmt::Display for UnknownPrice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.model {
            "" => f.write_str(
                "the request names no model, so it has no price: set the model in the agent's \
                 settings, or `PriceTable::default_model`",
            ),
            model => write!(
                f,
                "the price table has no price for the model `{model}`: add one with \
                 `PriceTable::model`, or choose `UnknownModel::Assume`"
            ),
        }
    }
}

impl std::error::Error for UnknownPrice {}

impl From<UnknownPrice> for Error {
    fn from(unknown: UnknownPrice) -> Self {
        Self::from_source(ErrorKind::InvalidRequest, unknown)
    }
}
