use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::model_price::ModelPrice;
use super::price_table::{PriceTable, UnknownModel, UnknownPrice};
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::gauge::Amount;
use tower_agent::message::{Metadata, Usage};
use tower_agent::model::{ModelRequest, Settings};

/// Limits on what may be spent, and what happens beyond them. By default nothing is limited.
///
/// ```
/// use std::time::Duration;
/// use tower_agent_middleware::budget::{Limit, Limits, OnExceeding};
///
/// let limits = Limits::new()
///     .model_calls(50)
///     .tokens(200_000)
///     .cost(0.5, |_model, usage| {
///         usage.input_tokens as f64 * 3e-6 + usage.output_tokens as f64 * 15e-6
///     })
///     .time(Duration::from_secs(300))
///     .warn_at(0.8, |limit, share| println!("{:.0} % of {limit}", 100.0 * share))
///     .on_exceeding(OnExceeding::Finish);
/// assert_eq!(limits.each().count(), 4);
/// assert!(limits.each().any(|limit| limit == Limit::Tokens(200_000)));
/// ```
#[derive(Clone)]
#[must_use = "limits do nothing until a budget has them"]
pub struct Limits {
    model_calls: Option<u64>,
    tool_calls: Option<u64>,
    tokens: Option<u64>,
    cost: Option<(f64, Prices)>,
    time: Option<Duration>,
    reservation: u64,
    warning: Option<(f64, Arc<Warn>)>,
    on_exceeding: OnExceeding,
}

#[derive(Clone)]
enum Prices {
    Function(Arc<Price>),
    Table(Arc<(PriceTable, UnknownModel)>),
}

type Price = dyn Fn(&str, Usage) -> f64 + Send + Sync;
type Warn = dyn Fn(Limit, f64) + Send + Sync;

/// One limit and its value.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Limit {
    /// Number of model calls.
    ModelCalls(u64),
    /// Number of tool calls.
    ToolCalls(u64),
    /// Number of input and output tokens.
    Tokens(u64),
    /// Cost, in the currency of the price function. Counted in billionths.
    Cost(f64),
    /// Time since the first call.
    Time(Duration),
}

/// The fate of a call that would exceed the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnExceeding {
    /// Fails the call with an error of kind [`BudgetExceeded`](ErrorKind::BudgetExceeded). After a
    /// tool call has failed this way, every later model call of the run fails too, so that the
    /// model cannot continue after reading of the refusal.
    #[default]
    Fail,
    /// Lets the agent conclude. A tool call gets a refusal as its result, for the model to read.
    /// The next model call is sent without tools and with an instruction to conclude. Each call of
    /// an agent may make one such model call beyond the limit; it is counted, and so is every retry
    /// of it. A further one fails.
    Finish,
    /// Refuses the call alone: a tool call gets a refusal as its result, for the model to read, and
    /// the run goes on. A model call fails.
    Refuse,
}

/// The budget is exhausted. Found with [`Error::downcast_ref`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Exceeded {
    /// The limit that the call would have exceeded.
    pub limit: Limit,
    /// The amount that the call needed: for tokens and cost what it would have
    /// [reserved](Limits::reservation), for time the time that had passed.
    pub wanted: Limit,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this call would exceed the limit: {}", self.limit)?;
        match self.wanted {
            // A tool call reserves no tokens and no cost: the limit is already reached.
            Limit::Tokens(0) | Limit::Cost(0.0) => Ok(()),
            Limit::Tokens(_) | Limit::Cost(_) => {
                write!(f, "; it would reserve {}", self.wanted)?;
                if self.wanted.units() <= self.limit.units() {
                    return Ok(());
                }
                f.write_str(
                    ", more than the whole limit, so no such call can run; lower `max_tokens` in the \
                     agent's settings or `Limits::reservation`, or raise the limit",
                )
            }
            Limit::ModelCalls(_) | Limit::ToolCalls(_) | Limit::Time(_) => Ok(()),
        }
    }
}

impl std::error::Error for Exceeded {}

impl From<Exceeded> for Error {
    fn from(exceeded: Exceeded) -> Self {
        Self::new(ErrorKind::BudgetExceeded, exceeded.to_string()).with_source(exceeded)
    }
}

impl Limits {
    /// Creates limits that limit nothing.
    pub fn new() -> Self {
        Self {
            model_calls: None,
            tool_calls: None,
            tokens: None,
            cost: None,
            time: None,
            reservation: 4096,
            warning: None,
            on_exceeding: OnExceeding::default(),
        }
    }

    /// Limits the number of model calls.
    pub fn model_calls(mut self, calls: u64) -> Self {
        self.model_calls = Some(calls);
        self
    }

    /// Limits the number of tool calls.
    pub fn tool_calls(mut self, calls: u64) -> Self {
        self.tool_calls = Some(calls);
        self
    }

    /// Limits the total number of input and output tokens. A call runs only if [what it
    /// reserves](Self::reservation) is left, so a limit below one reservation blocks every
    /// call; the error says so. For a limit below 4096, set `max_tokens` in the agent's
    /// [settings](tower_agent::Settings::max_tokens) or lower the reservation.
    pub fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Limits the total cost; replaces [`cost_at`](Self::cost_at). Negative or NaN means zero.
    /// `price` receives the model and the tokens and returns their cost; it also prices
    /// [reserved](Self::reservation) tokens, as output tokens.
    ///
    /// The model is the one named in the provider's response, otherwise the one in the request's
    /// settings; it is empty if neither names one. If `price` returns a negative number or NaN, the
    /// call fails before it runs; if that happens after the call, the call is charged what it
    /// reserved.
    pub fn cost(
        mut self,
        cost: f64,
        price: impl Fn(&str, Usage) -> f64 + Send + Sync + 'static,
    ) -> Self {
        // `max` turns NaN into 0.
        self.cost = Some((cost.max(0.0), Prices::Function(Arc::new(price))));
        self
    }

    /// Limits the total cost, at the prices of a table; replaces [`cost`](Self::cost). Negative or
    /// NaN means zero. `unknown` says what happens to a call of a model that has no price.
    ///
    /// Before a call, the price is that of the model in the request's settings, otherwise of the
    /// table's [default model](PriceTable::default_model). Which provider the model will ask is not
    /// known then, so of several that have a model of this name, the dearest price is reserved; set
    /// the [`provider`](PriceTable::provider) to reserve no more than its own. After the call, the
    /// price is that of the model named in the response, at the [provider that was
    /// asked](tower_agent::message::Metadata::provider), else that of the request's model there. If
    /// it has no price either, `unknown` decides, or the call is charged what it reserved, and it
    /// is counted in [`unpriced_calls`](super::Spent::unpriced_calls).
    pub fn cost_at(mut self, cost: f64, prices: PriceTable, unknown: UnknownModel) -> Self {
        self.cost = Some((cost.max(0.0), Prices::Table(Arc::new((prices, unknown)))));
        self
    }

    /// Limits the time since the first call, in `tokio`'s time. No call starts after it. A running
    /// call is not cut short; use a [timeout](crate::timeout) for that.
    pub fn time(mut self, time: Duration) -> Self {
        self.time = Some(time);
        self
    }

    /// Sets how many tokens a model call reserves if its request sets no `max_tokens`. Defaults to
    /// 4096.
    pub fn reservation(mut self, tokens: u64) -> Self {
        self.reservation = tokens;
        self
    }

    /// Calls `warn` once for each limit, when finished calls have used the fraction `share` of it,
    /// such as 0.8. `warn` receives the limit and the fraction used. A `tracing` warning is logged
    /// as well.
    pub fn warn_at(
        mut self,
        share: f64,
        warn: impl Fn(Limit, f64) + Send + Sync + 'static,
    ) -> Self {
        self.warning = Some((share, Arc::new(warn)));
        self
    }

    /// Sets what happens to a call that would exceed the budget. Defaults to
    /// [`Fail`](OnExceeding::Fail).
    pub fn on_exceeding(mut self, what: OnExceeding) -> Self {
        self.on_exceeding = what;
        self
    }

    /// Returns the limits that are set.
    pub fn each(&self) -> impl Iterator<Item = Limit> + use<> {
        let limits = [
            self.model_calls.map(Limit::ModelCalls),
            self.tool_calls.map(Limit::ToolCalls),
            self.tokens.map(Limit::Tokens),
            self.cost.as_ref().map(|(cost, _)| Limit::Cost(*cost)),
            self.time.map(Limit::Time),
        ];
        limits.into_iter().flatten()
    }

    /// Returns limits of a part: these, at the prices of the whole.
    pub(super) fn of_part(&self, limits: &[Limit]) -> Result<Self> {
        let mut part = Self {
            reservation: self.reservation,
            on_exceeding: self.on_exceeding,
            ..Self::new()
        };
        for limit in limits {
            match *limit {
                Limit::ModelCalls(calls) => part.model_calls = Some(calls),
                Limit::ToolCalls(calls) => part.tool_calls = Some(calls),
                Limit::Tokens(tokens) => part.tokens = Some(tokens),
                Limit::Time(time) => part.time = Some(time),
                Limit::Cost(cost) => {
                    let Some((_, prices)) = &self.cost else {
                        let problem = "a part with a limit of cost needs a budget with one, which knows the \
                                       prices";
                        return Err(Error::new(ErrorKind::InvalidRequest, problem));
                    };
                    part.cost = Some((cost.max(0.0), prices.clone()));
                }
            }
        }
        Ok(part)
    }

    pub(super) fn finishes(&self) -> bool {
        self.on_exceeding == OnExceeding::Finish
    }

    pub(super) fn refuses(&self) -> bool {
        self.on_exceeding == OnExceeding::Refuse
    }

    pub(super) fn default_reservation(&self) -> u64 {
        self.reservation
    }

    pub(super) fn warning(&self) -> Option<&(f64, Arc<Warn>)> {
        self.warning.as_ref()
    }

    /// Returns the cost in billionths of a call that reserves this many output tokens.
    pub(super) fn cost_of_reservation(&self, request: &ModelRequest, tokens: u64) -> Result<u64> {
        let usage = Usage::new(0, tokens);
        let model = request.settings().model.as_deref();
        match &self.cost {
            None => Ok(0),
            Some((_, Prices::Function(price))) => {
                let model = model.unwrap_or_default();
                billionths(price(model, usage)).ok_or_else(|| {
                    let message = format!(
                        "the price function returned no valid price for {tokens} tokens of model \
                         `{model}`"
                    );
                    Error::new(ErrorKind::Callback, message)
                })
            }
            Some((_, Prices::Table(prices))) => {
                let (table, unknown) = &**prices;
                let model = table.or_default(model);
                let price = table.dearest(model, usage).or(unknown.price());
                let price = price.ok_or_else(|| UnknownPrice {
                    model: model.to_owned(),
                })?;
                billionths(price.cost(usage)).ok_or_else(|| {
                    let message = format!("the price of the model `{model}` is not valid");
                    Error::new(ErrorKind::InvalidRequest, message)
                })
            }
        }
    }

    /// Returns the cost of a call with this usage, and with what the provider says of its response.
    pub(super) fn cost_of(&self, settings: &Settings, metadata: &Metadata, usage: Usage) -> Cost {
        let served = metadata.model.as_deref();
        let requested = settings.model.as_deref();
        match &self.cost {
            None => Cost {
                billionths: Some(0),
                is_priced: true,
            },
            Some((_, Prices::Function(price))) => {
                let model = served.or(requested).unwrap_or_default();
                // The price function is user code and may panic; the call must be charged even
                // then.
                let cost = catch_unwind(AssertUnwindSafe(|| price(model, usage)));
                Cost {
                    billionths: cost.ok().and_then(billionths),
                    is_priced: true,
                }
            }
            Some((_, Prices::Table(prices))) => {
                let (table, unknown) = &**prices;
                let (cost, is_priced) = table.cost_with(settings, metadata, usage, unknown.price());
                Cost {
                    billionths: cost.and_then(billionths),
                    is_priced,
                }
            }
        }
    }
}

/// The cost of a call.
pub(super) struct Cost {
    /// `None` if there is no valid price.
    pub(super) billionths: Option<u64>,
    /// The price is that of the model.
    pub(super) is_priced: bool,
}

impl UnknownModel {
    fn price(&self) -> Option<&ModelPrice> {
        match self {
            Self::Fail => None,
            Self::Assume(price) => Some(price),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.each()).finish()
    }
}

/// In whole numbers, sums are exact.
fn billionths(money: f64) -> Option<u64> {
    (money.is_finite() && money >= 0.0).then(|| (money * 1e9).round() as u64)
}

pub(super) fn money(billionths: u64) -> f64 {
    billionths as f64 / 1e9
}

impl Limit {
    /// Returns the value in whole units: calls, tokens, billionths, nanoseconds.
    pub(super) fn units(self) -> u64 {
        match self {
            Self::ModelCalls(units) | Self::ToolCalls(units) | Self::Tokens(units) => units,
            Self::Cost(money) => billionths(money).unwrap_or(u64::MAX),
            Self::Time(time) => nanos(time),
        }
    }

    /// Returns a limit of this kind with another value.
    pub(super) fn of(self, units: u64) -> Self {
        match self {
            Self::ModelCalls(_) => Self::ModelCalls(units),
            Self::ToolCalls(_) => Self::ToolCalls(units),
            Self::Tokens(_) => Self::Tokens(units),
            Self::Cost(_) => Self::Cost(money(units)),
            Self::Time(_) => Self::Time(Duration::from_nanos(units)),
        }
    }
}

impl Limit {
    /// Returns the value as it is shown, of what is `used` or `reserved`.
    pub(super) fn amount(self, of: &str) -> Amount {
        let (what, value) = match self {
            Self::ModelCalls(calls) => ("model calls", calls as f64),
            Self::ToolCalls(calls) => ("tool calls", calls as f64),
            Self::Tokens(tokens) => ("tokens", tokens as f64),
            Self::Cost(cost) => ("cost", cost),
            Self::Time(time) => ("time", time.as_secs_f64()),
        };
        let amount = Amount::new(format!("{what} {of}"), value);
        match self {
            Self::Time(_) => amount.unit("s"),
            _ => amount,
        }
    }
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ModelCalls(calls) => write!(f, "{calls} model calls"),
            Self::ToolCalls(calls) => write!(f, "{calls} tool calls"),
            Self::Tokens(tokens) => write!(f, "{tokens} tokens"),
            Self::Cost(cost) => write!(f, "a cost of {cost}"),
            Self::Time(time) => write!(f, "{} s", time.as_secs_f64()),
        }
    }
}
