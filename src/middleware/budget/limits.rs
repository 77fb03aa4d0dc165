use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::message::Usage;

/// What may be spent, and what happens beyond it. Nothing is limited unless said.
///
/// ```
/// use std::time::Duration;
/// use tower_agent::middleware::budget::{Limit, Limits, OnExceeding};
///
/// let limits = Limits::new()
///     .with_model_calls(50)
///     .with_tokens(200_000)
///     .with_cost(0.5, |_model, usage| {
///         usage.input_tokens as f64 * 3e-6 + usage.output_tokens as f64 * 15e-6
///     })
///     .with_time(Duration::from_secs(300))
///     .with_warning(0.8, |limit, share| println!("{:.0} % of {limit}", 100.0 * share))
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
    cost: Option<(f64, Arc<Price>)>,
    time: Option<Duration>,
    reservation: u64,
    warning: Option<(f64, Arc<Warn>)>,
    on_exceeding: OnExceeding,
}

type Price = dyn Fn(&str, Usage) -> f64 + Send + Sync;
type Warn = dyn Fn(Limit, f64) + Send + Sync;

/// One limit, with its value.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Limit {
    /// So many model calls.
    ModelCalls(u64),
    /// So many tool calls.
    ToolCalls(u64),
    /// So many tokens, read and written together.
    Tokens(u64),
    /// So much money, in the price function's currency. Counted in billionths.
    Cost(f64),
    /// So long.
    Time(Duration),
}

/// What happens to a call that the budget has no room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnExceeding {
    /// It fails with an error of kind [`BudgetExceeded`](ErrorKind::BudgetExceeded). After a tool
    /// call has, so does every model call of the run: a model that was told of the one may not go
    /// on.
    #[default]
    Fail,
    /// The agent finishes. A tool call is answered with a refusal that the model reads; the next
    /// model call is made with no tools on offer, and told to conclude. There is one such call for
    /// an agent's call, beyond the limit, and counted; so is each other attempt at it that a retry
    /// outside makes. A further one fails.
    Finish,
}

/// A budget is used up. [`Error::downcast_ref`] finds it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Exceeded {
    /// The limit that the call would have broken.
    pub limit: Limit,
    /// What the call would have taken of it: of tokens and money, what it would have
    /// [reserved](Limits::with_reservation); of time, what had passed.
    pub wanted: Limit,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the budget of {} has no room for this call", self.limit)?;
        match self.wanted {
            // Of which a tool call takes none: it is used up.
            Limit::Tokens(0) | Limit::Cost(0.0) => Ok(()),
            Limit::Tokens(_) | Limit::Cost(_) => {
                write!(f, ", which would reserve {}", self.wanted)?;
                if self.wanted.units() <= self.limit.units() {
                    return Ok(());
                }
                f.write_str(
                    ": more than all of it, so that no such call is ever made; set `max_tokens` in \
                     the agent's settings or `Limits::with_reservation` lower, or raise the limit",
                )
            }
            _ => Ok(()),
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
    /// No limits.
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

    /// At most so many model calls.
    pub fn with_model_calls(mut self, calls: u64) -> Self {
        self.model_calls = Some(calls);
        self
    }

    /// At most so many tool calls.
    pub fn with_tool_calls(mut self, calls: u64) -> Self {
        self.tool_calls = Some(calls);
        self
    }

    /// At most so many tokens, read and written together. A call is made only if there is room for
    /// [what it reserves](Self::with_reservation): a limit below that lets none through, and the
    /// error says so. A limit below 4096 needs `max_tokens` in the agent's
    /// [settings](crate::Settings::max_tokens), or a lower reservation.
    pub fn with_tokens(mut self, tokens: u64) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// At most so much money; none, where it is negative or no number. `price` is given the model
    /// and the tokens, and says what they cost; also what those do that a call
    /// [reserves](Self::with_reservation), as tokens that are written.
    ///
    /// The model is the one that the provider named in its answer, or else that of the request's
    /// settings; it is empty where neither says. A price that is negative or no number fails a
    /// call before it is made; after it, the call is charged what it had reserved.
    pub fn with_cost(
        mut self,
        cost: f64,
        price: impl Fn(&str, Usage) -> f64 + Send + Sync + 'static,
    ) -> Self {
        // `max` makes 0 of what is no number.
        self.cost = Some((cost.max(0.0), Arc::new(price)));
        self
    }

    /// No call begins when so much time has passed, in `tokio`'s time, since the first. A call
    /// that has begun is not cut short: that is a timeout's.
    pub fn with_time(mut self, time: Duration) -> Self {
        self.time = Some(time);
        self
    }

    /// What a model call reserves whose request sets no `max_tokens`: 4096 tokens unless told.
    pub fn with_reservation(mut self, tokens: u64) -> Self {
        self.reservation = tokens;
        self
    }

    /// Calls `warn`, once for each limit, when calls that are over have used this share of it, such
    /// as 0.8. It is given the limit and the share that is used. A `tracing` warning says the same.
    pub fn with_warning(
        mut self,
        share: f64,
        warn: impl Fn(Limit, f64) + Send + Sync + 'static,
    ) -> Self {
        self.warning = Some((share, Arc::new(warn)));
        self
    }

    /// What happens to a call that there is no room for; it [fails](OnExceeding::Fail) unless told.
    pub fn on_exceeding(mut self, what: OnExceeding) -> Self {
        self.on_exceeding = what;
        self
    }

    /// The limits that are set.
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

    pub(super) fn finishes(&self) -> bool {
        self.on_exceeding == OnExceeding::Finish
    }

    pub(super) fn reservation(&self) -> u64 {
        self.reservation
    }

    pub(super) fn warning(&self) -> Option<&(f64, Arc<Warn>)> {
        self.warning.as_ref()
    }

    /// What tokens cost, in billionths. `None` for a price that is none.
    pub(super) fn price(&self, model: &str, usage: Usage) -> Option<u64> {
        let Some((_, price)) = &self.cost else { return Some(0) };
        billionths(price(model, usage))
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

/// Whole numbers add up again to what was taken apart.
fn billionths(money: f64) -> Option<u64> {
    (money.is_finite() && money >= 0.0).then(|| (money * 1e9).round() as u64)
}

pub(super) fn money(billionths: u64) -> f64 {
    billionths as f64 / 1e9
}

impl Limit {
    /// In whole units: calls, tokens, billionths, nanoseconds.
    pub(super) fn units(self) -> u64 {
        match self {
            Self::ModelCalls(units) | Self::ToolCalls(units) | Self::Tokens(units) => units,
            Self::Cost(money) => billionths(money).unwrap_or(u64::MAX),
            Self::Time(time) => nanos(time),
        }
    }

    /// The same limit with another value.
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
