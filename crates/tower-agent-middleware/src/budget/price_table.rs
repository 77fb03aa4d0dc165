use std::collections::HashMap;
use std::fmt;
use std::iter;
use std::sync::Arc;

use super::model_price::ModelPrice;
use tower_agent::call::Attempted;
use tower_agent::error::{Error, ErrorKind};
use tower_agent::message::{Metadata, Usage};
use tower_agent::model::{CacheRetention, Settings};

/// The prices of models. Cloning is O(1).
///
/// A model's price is found by its name:
///
/// 1. The entry with exactly this name.
/// 2. The entry of the provider that the name starts with: `openai/gpt-4o` finds `gpt-4o` of the
///    provider `openai`.
/// 3. The same for the name without a date at its end: `gpt-4o-2026-01-31`,
///    `claude-opus-4-20260131` and `claude-opus-4@20260131` find the model without it.
///
/// Anything else is unknown. No other part of a name is left out, and no entry of another provider
/// is taken: a name without a provider is that of the provider that was asked, as
/// [`provider`](Self::provider) or else the response
/// [says](tower_agent::message::Metadata::provider), and one of the entries without a prefix only
/// where neither says whose it is. Before a call, a [budget](super::Limits::cost_at) does not know
/// whom the model will ask, and reserves the dearest of the prices that the name has.
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
    models: HashMap<String, PriceEntry>,
    /// The names of the entries, by their name without their provider's prefix.
    unprefixed: HashMap<String, Vec<String>>,
    default_model: Option<String>,
    provider: Option<String>,
}

#[derive(Clone)]
struct PriceEntry {
    provider: Option<String>,
    price: ModelPrice,
    /// Set by the caller, whichever provider is asked.
    is_own: bool,
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
        let entry = PriceEntry {
            provider,
            price,
            is_own: true,
        };
        Arc::make_mut(&mut self.0).insert(name, entry);
        self
    }

    /// Sets the model of requests that name none, such as the one that the client is configured
    /// with.
    #[must_use]
    pub fn default_model(mut self, name: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.0).default_model = Some(name.into());
        self
    }

    /// Sets the provider that is asked, as the table names it: for a server that is not known by
    /// its host. A name without a provider is then a model of this one, or one that was set by
    /// [`model`](Self::model), and of no other:
    ///
    /// ```
    /// use tower_agent_middleware::budget::PriceTable;
    ///
    /// let json = r#"{
    ///     "some-llama": {
    ///         "litellm_provider": "elsewhere",
    ///         "input_cost_per_token": 1e-07,
    ///         "output_cost_per_token": 1e-07
    ///     },
    ///     "groq/some-llama": {
    ///         "litellm_provider": "groq",
    ///         "input_cost_per_token": 6e-07,
    ///         "output_cost_per_token": 8e-07
    ///     }
    /// }"#;
    /// let prices = PriceTable::from_litellm(json)?.provider("groq");
    /// assert_eq!(prices.price("some-llama").map(|price| price.output), Some(8e-7));
    /// # Ok::<_, tower_agent::Error>(())
    /// ```
    #[must_use]
    pub fn provider(mut self, name: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.0).provider = Some(name.into());
        self
    }

    /// Returns the price of a model.
    #[must_use]
    pub fn price(&self, model: &str) -> Option<&ModelPrice> {
        self.price_at(None, model)
    }

    /// Returns the price of a model at the provider that was asked, if it is known.
    pub(super) fn price_at(&self, provider: Option<&str>, model: &str) -> Option<&ModelPrice> {
        let entries = &*self.0;
        let provider = entries.provider.as_deref().or(provider);
        entries
            .price(provider, model)
            .or_else(|| entries.price(provider, without_date(model)?))
    }

    /// Returns the cost of an [attempt](tower_agent::call::Attempts) at a model call: of the tokens
    /// that the provider has told, at the price of the model that has answered, or else of the one
    /// that was asked for. `None` if it has told none, or the model has no price here.
    ///
    /// ```
    /// use tower_agent::call::Attempts;
    /// use tower_agent_middleware::budget::PriceTable;
    ///
    /// /// A line for each attempt at a call.
    /// fn lines(attempts: &Attempts, prices: &PriceTable) -> Vec<String> {
    ///     let attempts = attempts.list().into_iter();
    ///     attempts
    ///         .map(|attempt| match prices.cost_of(&attempt) {
    ///             Some(cost) => format!("{:?}: {cost}", attempt.end),
    ///             None => format!("{:?}: at a price that is not known", attempt.end),
    ///         })
    ///         .collect()
    /// }
    /// # drop(lines);
    /// ```
    #[must_use]
    pub fn cost_of(&self, attempt: &Attempted) -> Option<f64> {
        let settings = attempt.request::<Settings>()?;
        let usage = attempt.usage.known()?;
        self.cost_with(settings, &attempt.metadata, usage, None).0
    }

    /// Returns the cost of a call, at the price of the model or at this one, and whether it is that
    /// of the model that has answered.
    pub(super) fn cost_with(
        &self,
        settings: &Settings,
        metadata: &Metadata,
        usage: Usage,
        unknown: Option<&ModelPrice>,
    ) -> (Option<f64>, bool) {
        let requested = self.or_default(settings.model.as_deref());
        // The model that has answered, which may be another than the one that was asked for.
        let served = metadata.model.as_deref().unwrap_or(requested);
        let provider = metadata.provider.as_deref();
        let own = self.price_at(provider, served);
        let price = own
            .or_else(|| self.price_at(provider, requested))
            .or(unknown);
        let cache = settings
            .prompt_cache
            .as_ref()
            .and_then(|cache| cache.retention);
        let is_long = cache == Some(CacheRetention::Long);
        let written = usage.cache_write_tokens;
        // The provider's word counts more than the request.
        let long = metadata.long_cache_write_tokens;
        let long = long.unwrap_or(if is_long { written } else { 0 });
        let cost = price.map(|price| price.cost_with(usage, long.min(written)));
        (cost, own.is_some())
    }

    /// Returns the price of a call before it is known which provider will be asked: the dearest of
    /// the entries that the name may stand for, so that a reservation is not below what the call
    /// may cost.
    pub(super) fn dearest(&self, model: &str, usage: Usage) -> Option<&ModelPrice> {
        let entries = &*self.0;
        let exact = entries.models.get(model);
        if entries.provider.is_some() || exact.is_some_and(|entry| entry.is_own) {
            return self.price(model);
        }
        let names = iter::once(model).chain(without_date(model));
        names
            .flat_map(|name| entries.prices(name))
            .max_by(|one, two| one.cost(usage).total_cmp(&two.cost(usage)))
    }

    pub(super) fn insert(&mut self, name: String, provider: Option<String>, price: ModelPrice) {
        let entry = PriceEntry {
            provider,
            price,
            is_own: false,
        };
        Arc::make_mut(&mut self.0).insert(name, entry);
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
    /// Returns the price of the model with this whole name.
    fn price(&self, provider: Option<&str>, model: &str) -> Option<&ModelPrice> {
        if let Some(entry) = self.models.get(model)
            && entry.is_meant(provider, model)
        {
            return Some(&entry.price);
        }
        if let Some(price) = self.price_of(provider, model) {
            return Some(price);
        }
        let (provider, name) = model.split_once('/')?;
        self.price_of(Some(provider), name)
    }

    /// Returns the prices of the model with this whole name, at any provider.
    fn prices(&self, model: &str) -> impl Iterator<Item = &ModelPrice> {
        let names = self.unprefixed.get(model).into_iter().flatten();
        let of_any = names.filter_map(|name| self.models.get(name));
        // A prefix may be that of the provider, or part of the name at a gateway.
        of_any
            .map(|entry| &entry.price)
            .chain(self.price(None, model))
    }

    fn price_of(&self, provider: Option<&str>, name: &str) -> Option<&ModelPrice> {
        let names = self.unprefixed.get(name)?.iter();
        let entry = names
            .filter_map(|name| self.models.get(name))
            .find(|entry| provider.is_some() && entry.provider.as_deref() == provider)?;
        Some(&entry.price)
    }

    fn insert(&mut self, name: String, entry: PriceEntry) {
        let prefixed = entry
            .provider
            .as_deref()
            .and_then(|provider| name.strip_prefix(provider)?.strip_prefix('/'));
        let names = self
            .unprefixed
            .entry(prefixed.unwrap_or(&name).to_owned())
            .or_default();
        if !names.contains(&name) {
            names.push(name.clone());
        }
        self.models.insert(name, entry);
    }
}

impl PriceEntry {
    /// Returns whether the entry with a name is that of the provider that is asked.
    fn is_meant(&self, provider: Option<&str>, name: &str) -> bool {
        let is_other = provider.is_some() && self.provider.as_deref() != provider;
        // A name with a prefix says whose it is.
        !is_other || self.is_own || name.contains('/')
    }
}

/// Returns a name without the date at its end, if it has one: `-2026-01-31`, `-20260131` or
/// `@20260131`.
fn without_date(name: &str) -> Option<&str> {
    ["-dddd-dd-dd", "-dddddddd", "@dddddddd"]
        .into_iter()
        .find_map(|form| {
            let at = name.len().checked_sub(form.len())?;
            let (rest, date) = name.split_at_checked(at)?;
            let mut pairs = form.bytes().zip(date.bytes());
            let is_date = pairs.all(|(form, byte)| match form {
                b'd' => byte.is_ascii_digit(),
                _ => byte == form,
            });
            (is_date && !rest.is_empty()).then_some(rest)
        })
}

impl fmt::Debug for PriceTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PriceTable")
            .field("models", &self.0.models.len())
            .field("default_model", &self.0.default_model)
            .field("provider", &self.0.provider)
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
                "the price table has no price for the model `{model}`: say whose it is with \
                 `PriceTable::provider`, add one with `PriceTable::model`, or choose \
                 `UnknownModel::Assume`"
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
