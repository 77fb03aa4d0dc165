use tower_agent::message::Usage;

/// The price of one model, per token. The currency is that of the whole table.
///
/// ```
/// use tower_agent::Usage;
/// use tower_agent_middleware::budget::ModelPrice;
///
/// let mut price = ModelPrice::new(3e-6, 15e-6);
/// price.cache_read = Some(0.3e-6);
///
/// let mut usage = Usage::new(1_000_000, 0);
/// assert_eq!(price.cost(usage), 3.0);
/// usage.cached_input_tokens = 1_000_000;
/// assert_eq!(price.cost(usage), 0.3);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ModelPrice {
    /// The price of an input token.
    pub input: f64,
    /// The price of an output token.
    pub output: f64,
    /// The price of an input token read from the cache, if it differs from `input`.
    pub cache_read: Option<f64>,
    /// The price of an input token written to the cache, if it differs from `input`.
    pub cache_write: Option<f64>,
    /// The price of an input token written to the cache for an hour or longer, if it differs from
    /// `cache_write`.
    pub long_cache_write: Option<f64>,
    /// The price of an output token spent on reasoning, if it differs from `output`.
    pub reasoning: Option<f64>,
    /// The prices of long prompts, by the number of input tokens that they start above.
    above: Vec<(u64, ModelPrice)>,
}

impl ModelPrice {
    /// Creates the price of input and output tokens.
    #[must_use]
    pub fn new(input: f64, output: f64) -> Self {
        Self {
            input,
            output,
            cache_read: None,
            cache_write: None,
            long_cache_write: None,
            reasoning: None,
            above: Vec::new(),
        }
    }

    /// Sets the price of calls with more input tokens than this. It holds for the whole call.
    #[must_use]
    pub fn above(mut self, input_tokens: u64, price: Self) -> Self {
        self.above.retain(|(above, _)| *above != input_tokens);
        self.above.push((input_tokens, price));
        self.above.sort_by_key(|(above, _)| *above);
        self
    }

    /// Returns the cost of a call with this usage.
    #[must_use]
    pub fn cost(&self, usage: Usage) -> f64 {
        self.cost_with(usage, 0)
    }

    /// Returns the cost of a call. `written_long` of the tokens written to the cache are kept for
    /// an hour or longer, at most all.
    pub(super) fn cost_with(&self, usage: Usage, written_long: u64) -> f64 {
        // From the highest threshold down, since the list is sorted.
        let reached = self
            .above
            .iter()
            .rev()
            .find(|(above, _)| usage.input_tokens > *above);
        if let Some((_, price)) = reached {
            return price.cost_with(usage, written_long);
        }
        let read = usage.cached_input_tokens;
        let written = usage.cache_write_tokens;
        let new = usage
            .input_tokens
            .saturating_sub(read.saturating_add(written));
        let answer_tokens = usage.output_tokens.saturating_sub(usage.reasoning_tokens);
        let cache_write = self.cache_write.unwrap_or(self.input);
        let long_cache_write = self.long_cache_write.unwrap_or(cache_write);
        [
            (new, self.input),
            (read, self.cache_read.unwrap_or(self.input)),
            (written.saturating_sub(written_long), cache_write),
            (written_long, long_cache_write),
            (answer_tokens, self.output),
            (
                usage.reasoning_tokens,
                self.reasoning.unwrap_or(self.output),
            ),
        ]
        .into_iter()
        .map(|(tokens, price)| tokens as f64 * price)
        .sum()
    }

    /// Returns whether every price is a number that is not negative.
    pub(super) fn is_valid(&self) -> bool {
        let optional = [
            self.cache_read,
            self.cache_write,
            self.long_cache_write,
            self.reasoning,
        ];
        let all = [self.input, self.output]
            .into_iter()
            .chain(optional.into_iter().flatten());
        all.into_iter()
            .all(|price| price.is_finite() && price >= 0.0)
            && self.above.iter().all(|(_, price)| price.is_valid())
    }
}
