use std::collections::HashMap;
use std::fmt;
use std::ops::{AddAssign, SubAssign};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::limits::{Exceeded, Limit, Limits, money, nanos};
use tower_agent::context::RunContext;
use tower_agent::context::{Amounts as Recorded, EffectLog};
use tower_agent::error::Result as GaugeResult;
use tower_agent::gauge::{Gauge, Reading};

use crate::lock::lock;

/// Records what was spent against limits, and what running calls have reserved. Clones share one
/// account.
///
/// ```
/// use tower_agent_middleware::budget::{Account, Limit, Limits};
///
/// let account = Account::new(Limits::new().model_calls(50));
/// assert_eq!(account.used().model_calls, 0);
/// assert_eq!(account.left(), [Limit::ModelCalls(50)]);
/// ```
#[derive(Clone)]
pub struct Account(Arc<AccountInner>);

struct AccountInner {
    limits: Limits,
    ledger: Mutex<Ledger>,
    begun: OnceLock<Instant>,
    /// The time used before the account was restored.
    earlier: Duration,
    /// The account that this one is a part of.
    part_of: Option<PartOf>,
}

/// The share that a part has of another account.
struct PartOf {
    whole: Account,
    /// The name of what is charged to the part, among the effects of calls.
    name: Arc<str>,
    /// The amount that is set aside in the whole account, and not yet used.
    set_aside: Mutex<Amounts>,
}

#[derive(Default)]
struct Ledger {
    used: Amounts,
    reserved: Amounts,
    warned: Vec<Limit>,
    /// The charges of each call of a durable run, with the calls in it.
    calls: HashMap<Arc<str>, Amounts>,
}

impl Ledger {
    fn taken(&self) -> Amounts {
        let mut taken = self.used;
        taken += self.reserved;
        taken
    }

    /// Notes what was charged for each of these calls.
    fn note<'a>(&mut self, calls: impl Iterator<Item = &'a Arc<str>>, spent: Amounts) {
        for call in calls {
            *self.calls.entry(call.clone()).or_default() += spent;
        }
    }
}

/// Amounts that calls have used or reserved. It serialises; a field that is not there or not known
/// is an error, as what was spent would be read as less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Spent {
    /// Number of model calls that were allowed, failed ones included.
    pub model_calls: u64,
    /// Number of tool calls that were allowed, failed ones included.
    pub tool_calls: u64,
    /// Input and output tokens.
    pub tokens: u64,
    /// The number of the tokens that no provider has told to the run: what is left are those in its
    /// [usage](tower_agent::RunContext::usage). They are an estimate where a call was cut, what was
    /// reserved where an answer states nothing that can be true, and the word of a layer that has
    /// answered by itself.
    pub estimated_tokens: u64,
    /// Cost, in the currency of the price function or the price table.
    pub cost: f64,
    /// Number of model calls whose model has no price in the [price table](super::PriceTable), so
    /// that another price was charged.
    pub unpriced_calls: u64,
    /// Time since the first call.
    pub time: Duration,
}

impl Spent {
    /// More than any limit.
    pub(super) const ALL: Self = Self {
        model_calls: u64::MAX,
        tool_calls: u64::MAX,
        tokens: u64::MAX,
        estimated_tokens: 0,
        cost: f64::MAX,
        unpriced_calls: 0,
        time: Duration::MAX,
    };
}

/// [`Spent`] in whole units, so that sums are exact.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Amounts {
    pub(super) model_calls: u64,
    pub(super) tool_calls: u64,
    pub(super) tokens: u64,
    pub(super) estimated_tokens: u64,
    pub(super) cost: u64,
    pub(super) unpriced_calls: u64,
}

impl Account {
    /// Creates an empty account. Its time starts with the first call.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self::restored(limits, Spent::default())
    }

    /// Creates an account that has used this much already, such as what
    /// [`used`](Self::used) returned in another process. Its time goes on with the first call.
    ///
    /// Reservations of running calls are not part of it: save the account when they have ended. A
    /// warning about a limit is not repeated.
    ///
    /// ```
    /// use tower_agent_middleware::budget::{Account, Limit, Limits, Spent};
    ///
    /// # fn main() -> Result<(), serde_json::Error> {
    /// let mut used = Spent::default();
    /// used.model_calls = 20;
    /// let saved = serde_json::to_string(&used)?;
    ///
    /// let used: Spent = serde_json::from_str(&saved)?;
    /// let account = Account::restored(Limits::new().model_calls(50), used);
    /// assert_eq!(account.left(), [Limit::ModelCalls(30)]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn restored(limits: Limits, used: Spent) -> Self {
        let earlier = used.time;
        let used = Amounts::from(used);
        let mut ledger = Ledger {
            used,
            ..Ledger::default()
        };
        if let Some((share, _)) = limits.warning() {
            // The process before has given these warnings.
            let reached = limits
                .each()
                .filter(|limit| used.share(*limit, nanos(earlier)) >= *share);
            ledger.warned = reached.collect();
        }
        Self::with_ledger(limits, ledger, earlier, None)
    }

    fn with_ledger(
        limits: Limits,
        ledger: Ledger,
        earlier: Duration,
        part_of: Option<PartOf>,
    ) -> Self {
        Self(Arc::new(AccountInner {
            limits,
            ledger: Mutex::new(ledger),
            begun: OnceLock::new(),
            earlier,
            part_of,
        }))
    }

    /// Sets a part of this account aside, with limits of its own. `used` is what the part has used
    /// already. Everything is charged to both.
    pub(super) fn carve(
        &self,
        limits: Limits,
        used: Spent,
        name: Arc<str>,
    ) -> Result<Self, Exceeded> {
        let ledger = Ledger {
            used: Amounts::from(used),
            ..Ledger::default()
        };
        let mut set_aside = Amounts::limited_by(&limits);
        set_aside -= ledger.used;
        self.hold(set_aside)?;
        let part_of = PartOf {
            whole: self.clone(),
            name,
            set_aside: Mutex::new(set_aside),
        };
        Ok(Self::with_ledger(limits, ledger, used.time, Some(part_of)))
    }

    /// Gives back what is set aside for this part. What its calls still use is charged.
    pub(super) fn give_back(&self) {
        if let Some(part) = &self.0.part_of {
            let left = part.take(Amounts::ALL);
            part.whole.release(left);
        }
    }

    /// Returns the limits that say what things cost.
    pub(super) fn prices(&self) -> &Limits {
        match &self.0.part_of {
            Some(part) => part.whole.prices(),
            None => &self.0.limits,
        }
    }

    /// Returns this account and those that it is a part of.
    fn each(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |account| {
            account.0.part_of.as_ref().map(|part| &part.whole)
        })
    }

    /// Returns the limits of the account.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Returns what finished calls have used.
    #[must_use]
    pub fn used(&self) -> Spent {
        self.spent(self.ledger().used)
    }

    /// Returns what running calls have reserved.
    #[must_use]
    pub fn reserved(&self) -> Spent {
        Spent {
            time: Duration::ZERO,
            ..self.spent(self.ledger().reserved)
        }
    }

    /// Returns each limit with the amount that is neither used nor reserved.
    #[must_use]
    pub fn left(&self) -> Vec<Limit> {
        let time = self.time();
        // Read under one lock: a call that finishes meanwhile is counted once.
        let taken = self.ledger().taken();
        let left = self.0.limits.each().map(|limit| {
            let units = limit.units().saturating_sub(taken.of(limit, time));
            limit.of(units)
        });
        left.collect()
    }

    /// Returns the state of the account, as a [`Gauge`] shows it: what is used of each limit, and
    /// what running calls have reserved. Without limits, it is what was used.
    ///
    /// ```
    /// use tower_agent_middleware::budget::{Account, Limits};
    ///
    /// let reading = Account::new(Limits::new().model_calls(50)).reading();
    /// assert_eq!(reading.state, "within its limits");
    /// assert_eq!(reading.amounts[0].to_string(), "model calls used: 0 of 50");
    /// ```
    pub fn reading(&self) -> Reading {
        let time = self.time();
        // Read under one lock: a call that finishes meanwhile is counted once.
        let (used, reserved) = {
            let ledger = self.ledger();
            (ledger.used, ledger.reserved)
        };
        let mut taken = used;
        taken += reserved;
        let left = |limit: Limit| limit.units().saturating_sub(taken.of(limit, time));
        let has_room = |limit: Limit| match limit {
            Limit::Tokens(_) => left(limit) >= self.0.limits.default_reservation(),
            _ => left(limit) > 0,
        };
        let admits = self.0.limits.each().all(has_room);
        let state = if self.0.limits.each().any(|limit| left(limit) == 0) {
            "used up"
        } else if admits {
            "within its limits"
        } else {
            "too little left for a usual call"
        };
        let mut reading = Reading::new("budget", state, admits);
        let mut limits: Vec<_> = self.0.limits.each().map(|limit| (limit, true)).collect();
        if limits.is_empty() {
            limits = vec![(Limit::ModelCalls(0), false), (Limit::Tokens(0), false)];
        }
        for (limit, is_set) in limits {
            let amount = limit.of(used.of(limit, time)).amount("used");
            let most = limit.amount("used").value;
            reading = reading.with(if is_set { amount.limit(most) } else { amount });
            let reserved = reserved.of(limit, 0);
            if reserved > 0 {
                reading = reading.with(limit.of(reserved).amount("reserved"));
            }
        }
        reading
    }

    /// Starts the clock, if it has not started.
    pub(super) fn begin(&self) {
        self.0.begun.get_or_init(Instant::now);
    }

    /// Reserves what a call may use, if the limits allow it.
    pub(super) fn reserve(&self, wanted: Amounts) -> Result<Reservation, Exceeded> {
        self.hold(wanted)?;
        Ok(self.reservation(wanted))
    }

    /// Reserves what a call may use, even beyond the limits.
    pub(super) fn reserve_beyond(&self, wanted: Amounts) -> Reservation {
        let mut wanted_here = wanted;
        for account in self.each() {
            account.begin();
            account.ledger().reserved += wanted_here;
            wanted_here = account.not_set_aside(wanted_here);
        }
        self.reservation(wanted)
    }

    fn reservation(&self, held: Amounts) -> Reservation {
        Reservation {
            account: self.clone(),
            held: Mutex::new(Some(held)),
            log: None,
        }
    }

    fn hold(&self, wanted: Amounts) -> Result<(), Exceeded> {
        self.begin();
        let time = self.time();
        let broken = {
            let mut ledger = self.ledger();
            let mut taken = ledger.taken();
            taken += wanted;
            let broken = self.0.limits.each().find(|limit| match limit {
                // Time is not reserved: at the limit nothing more may start.
                Limit::Time(_) => time >= limit.units(),
                Limit::ModelCalls(_) | Limit::ToolCalls(_) | Limit::Tokens(_) | Limit::Cost(_) => {
                    taken.of(*limit, time) > limit.units()
                }
            });
            if broken.is_none() {
                ledger.reserved += wanted;
            }
            broken
        };
        if let Some(limit) = broken {
            return Err(Exceeded {
                limit,
                wanted: limit.of(wanted.of(limit, time)),
            });
        }
        let Some(part) = &self.0.part_of else {
            return Ok(());
        };
        // Only limits of the part are set aside.
        let held = part.whole.hold(self.not_set_aside(wanted));
        if held.is_err() {
            self.ledger().reserved -= wanted;
        }
        held
    }

    /// Returns the amounts that this part has no limits for: they come from the whole account.
    fn not_set_aside(&self, amounts: Amounts) -> Amounts {
        let mut not_limited = amounts;
        for limit in self.0.limits.each() {
            not_limited.clear(limit);
        }
        not_limited
    }

    /// Gives back what was held, here and in the accounts that this is a part of.
    fn release(&self, held: Amounts) {
        self.settle(held, Amounts::default(), None);
    }

    /// Charges what a call has spent that held this much, also to the accounts that this is a part
    /// of.
    fn settle(&self, held: Amounts, spent: Amounts, effects: Option<&EffectLog>) {
        let mut held_here = held;
        for account in self.each() {
            let mut ledger = account.ledger();
            ledger.reserved -= held_here;
            ledger.used += spent;
            if let Some(effects) = effects {
                ledger.note(effects.calls(), spent);
            }
            drop(ledger);
            held_here = account.not_set_aside(held_here);
            if let Some(part) = &account.0.part_of {
                held_here += part.take(spent);
            }
        }
    }

    /// Reports, once for each limit, that the configured fraction of it is used.
    fn warn(&self, run: Option<&RunContext>) {
        self.each().for_each(|account| account.warn_here(run));
    }

    fn warn_here(&self, run: Option<&RunContext>) {
        let Some((share, warn)) = self.0.limits.warning() else {
            return;
        };
        let time = self.time();
        let mut reached = Vec::new();
        let mut ledger = self.ledger();
        for limit in self.0.limits.each() {
            let used = ledger.used.share(limit, time);
            if used >= *share && !ledger.warned.contains(&limit) {
                ledger.warned.push(limit);
                reached.push((limit, used));
            }
        }
        // The caller's function may ask the account, which takes the lock.
        drop(ledger);
        for (limit, used) in reached {
            tracing::warn!(run_id = run.map(RunContext::run_id), agent = run.map(RunContext::path), %limit, used, "budget nearly exhausted");
            warn(limit, used);
        }
    }

    /// Returns the time used, in nanoseconds.
    fn time(&self) -> u64 {
        let now = self.0.begun.get().map_or(Duration::ZERO, Instant::elapsed);
        nanos(self.0.earlier.saturating_add(now))
    }

    fn spent(&self, amounts: Amounts) -> Spent {
        let Amounts {
            model_calls,
            tool_calls,
            tokens,
            estimated_tokens,
            cost,
            unpriced_calls,
        } = amounts;
        Spent {
            model_calls,
            tool_calls,
            tokens,
            estimated_tokens,
            cost: money(cost),
            unpriced_calls,
            time: Duration::from_nanos(self.time()),
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.0.ledger)
    }
}

impl Gauge for Account {
    async fn read(&self, _: usize) -> GaugeResult<Vec<Reading>> {
        Ok(vec![self.reading()])
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("used", &self.used())
            .field("reserved", &self.reserved())
            .field("limits", self.limits())
            .finish()
    }
}

impl Amounts {
    fn of(&self, limit: Limit, time: u64) -> u64 {
        match limit {
            Limit::ModelCalls(_) => self.model_calls,
            Limit::ToolCalls(_) => self.tool_calls,
            Limit::Tokens(_) => self.tokens,
            Limit::Cost(_) => self.cost,
            Limit::Time(_) => time,
        }
    }

    /// Returns the share of a limit that is used.
    fn share(&self, limit: Limit, time: u64) -> f64 {
        self.of(limit, time) as f64 / limit.units() as f64
    }

    /// Returns each amount with the name under which it is recorded.
    fn named(&mut self) -> [(&'static str, &mut u64); 6] {
        [
            ("model_calls", &mut self.model_calls),
            ("tool_calls", &mut self.tool_calls),
            ("tokens", &mut self.tokens),
            ("estimated_tokens", &mut self.estimated_tokens),
            ("cost", &mut self.cost),
            ("unpriced_calls", &mut self.unpriced_calls),
        ]
    }

    fn change_by(&mut self, mut other: Self, change: fn(u64, u64) -> u64) {
        for ((_, own), (_, other)) in self.named().into_iter().zip(other.named()) {
            *own = change(*own, *other);
        }
    }
}

impl AddAssign for Amounts {
    fn add_assign(&mut self, other: Self) {
        self.change_by(other, u64::saturating_add);
    }
}

impl SubAssign for Amounts {
    fn sub_assign(&mut self, other: Self) {
        self.change_by(other, u64::saturating_sub);
    }
}

/// The reservation of one call, until the call ends.
pub(super) struct Reservation {
    account: Account,
    /// The amounts that it may spend. `None` once the call is settled.
    held: Mutex<Option<Amounts>>,
    /// The log that what it spends belongs to, and the name of the budget there.
    log: Option<(EffectLog, Arc<str>)>,
}

impl Reservation {
    /// Makes what it spends part of the effects of a call.
    pub(super) fn log(&mut self, effects: EffectLog, budget: Arc<str>) {
        self.log = Some((effects, budget));
    }

    /// Returns the limits that say what the call costs.
    pub(super) fn prices(&self) -> &Limits {
        self.account.prices()
    }

    /// Returns whether the call was neither settled nor released.
    pub(super) fn is_open(&self) -> bool {
        lock(&self.held).is_some()
    }

    /// Ends the call of this run, which counts as one. `used` computes what it has used besides,
    /// from the reservation.
    pub(super) fn settle(&self, run: Option<&RunContext>, used: impl FnOnce(Amounts) -> Amounts) {
        // Taken once: a call that was settled is dropped later.
        let Some(held) = lock(&self.held).take() else {
            return;
        };
        let mut spent = held.without_tokens();
        spent += used(held);
        // A call counts once, however many of its attempts have no price.
        spent.unpriced_calls = spent.unpriced_calls.min(1);
        self.close(held, spent);
        self.account.warn(run);
    }

    /// Gives back everything: the call did not run.
    pub(super) fn release(&self) {
        if let Some(held) = lock(&self.held).take() {
            self.close(held, Amounts::default());
        }
    }

    fn close(&self, held: Amounts, spent: Amounts) {
        let effects = self.log.as_ref().map(|(effects, _)| effects);
        self.account.settle(held, spent, effects);
        if let Some((effects, budget)) = &self.log {
            effects.record(budget, &spent.recorded());
            for account in self.account.each() {
                if let Some(part) = &account.0.part_of {
                    effects.record(&part.name, &spent.recorded());
                }
            }
        }
    }
}

impl Account {
    /// Charges what a replayed call has spent, to this account alone. `calls` are the call and
    /// those around it.
    pub(super) fn charge_replayed(&self, calls: &[Arc<str>], recorded: &Recorded) {
        self.begin();
        let mut ledger = self.ledger();
        let mut spent = Amounts::from(recorded);
        // This process may have made the call itself, before the run was started again: what it
        // charged then is in the account.
        let charged = calls.first().and_then(|call| ledger.calls.get(call));
        spent -= charged.copied().unwrap_or_default();
        ledger.used += spent;
        ledger.note(calls.iter(), spent);
        drop(ledger);
        if let Some(part) = &self.0.part_of {
            // The whole account is charged for itself.
            let used = part.take(spent);
            part.whole.release(used);
        }
    }
}

impl PartOf {
    /// Takes up to this much of what is set aside.
    fn take(&self, wanted: Amounts) -> Amounts {
        let mut set_aside = lock(&self.set_aside);
        let mut left = *set_aside;
        left -= wanted;
        let mut taken = *set_aside;
        taken -= left;
        *set_aside = left;
        taken
    }
}

impl From<Spent> for Amounts {
    fn from(spent: Spent) -> Self {
        Self {
            model_calls: spent.model_calls,
            tool_calls: spent.tool_calls,
            tokens: spent.tokens,
            estimated_tokens: spent.estimated_tokens,
            cost: Limit::Cost(spent.cost).units(),
            unpriced_calls: spent.unpriced_calls,
        }
    }
}

impl Amounts {
    /// More than any account has.
    const ALL: Self = Self {
        model_calls: u64::MAX,
        tool_calls: u64::MAX,
        tokens: u64::MAX,
        estimated_tokens: u64::MAX,
        cost: u64::MAX,
        unpriced_calls: u64::MAX,
    };

    /// Returns all that these limits allow. Time is nothing that can be set aside.
    fn limited_by(limits: &Limits) -> Self {
        let mut amounts = Self::default();
        for limit in limits.each() {
            if let Some(amount) = amounts.of_mut(limit) {
                *amount = limit.units();
            }
        }
        amounts
    }

    fn clear(&mut self, limit: Limit) {
        if let Some(amount) = self.of_mut(limit) {
            *amount = 0;
        }
    }

    fn of_mut(&mut self, limit: Limit) -> Option<&mut u64> {
        match limit {
            Limit::ModelCalls(_) => Some(&mut self.model_calls),
            Limit::ToolCalls(_) => Some(&mut self.tool_calls),
            Limit::Tokens(_) => Some(&mut self.tokens),
            Limit::Cost(_) => Some(&mut self.cost),
            Limit::Time(_) => None,
        }
    }

    /// Returns the form that is recorded with a call, without what is zero.
    fn recorded(mut self) -> Recorded {
        let amounts = self.named().into_iter();
        let some = amounts.filter(|(_, amount)| **amount > 0);
        some.map(|(name, amount)| (name.to_owned(), *amount))
            .collect()
    }

    fn without_tokens(self) -> Self {
        Self {
            tokens: 0,
            cost: 0,
            ..self
        }
    }

    /// Returns what was reserved for a call, as what it has used: nobody has told.
    pub(super) fn assumed(self) -> Self {
        Self {
            model_calls: 0,
            tool_calls: 0,
            estimated_tokens: self.tokens,
            ..self
        }
    }
}

impl From<&Recorded> for Amounts {
    fn from(charge: &Recorded) -> Self {
        let mut amounts = Self::default();
        for (name, amount) in amounts.named() {
            *amount = charge.get(name).copied().unwrap_or_default();
        }
        amounts
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // Of a call that was refused before it began: any other is settled when it ends.
        self.release();
    }
}
