//! The outside: what really happened, and what is checked of it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A part of the fleet that a program may leave out, to see that something is found without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Journal,
    Approval,
    RateLimit,
    Budget,
    Timeouts,
}

/// How much there is of everything.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) users: u32,
    /// The time in which all of them come.
    pub(crate) time: Duration,
    /// The number of days in that time, each with a night in which hardly anybody comes. With 0,
    /// they come at any time.
    pub(crate) days: u32,
    /// The number of crashes, partitions and slow times.
    pub(crate) faults: u32,
    /// The step of the simulated network. A message takes one to four of them.
    pub(crate) tick: Duration,
    pub(crate) without: Option<Part>,
}

/// The users of a whole week, and its faults: one in two minutes.
const USERS_OF_WEEK: u32 = 100_000;
const FAULTS_OF_WEEK: u32 = 5_040;
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

impl Plan {
    /// Returns the plan of a minute, in which many come at once.
    pub(crate) fn minute(seed: u64, without: Option<Part>) -> Self {
        Self {
            seed,
            users: 16,
            time: Duration::from_secs(60),
            days: 0,
            faults: 8,
            tick: Duration::from_millis(10),
            without,
        }
    }

    /// Returns the plan of a week of 100,000 users. With fewer of them, the week and its days are
    /// shorter.
    pub(crate) fn week(seed: u64, users: u32) -> Self {
        Self {
            seed,
            users,
            time: WEEK * users / USERS_OF_WEEK,
            days: 7,
            faults: (u64::from(FAULTS_OF_WEEK) * u64::from(users) / u64::from(USERS_OF_WEEK))
                as u32,
            // Every host makes each step, also at night: a finer one takes longer. With a much
            // coarser one, calls that the limit lets through one after the other would reach a
            // provider together.
            tick: Duration::from_millis(50),
            without: None,
        }
    }
}

/// The limit of each provider: calls in a period, and those that may come at once.
pub(crate) const LIMIT: u64 = 8;
pub(crate) const PERIOD: Duration = Duration::from_secs(10);
pub(crate) const BURST: f64 = 0.25;

/// The model calls that a run may make.
pub(crate) const CALLS: u64 = 6;

#[derive(Clone)]
pub(crate) struct World(Arc<Inner>);

struct Inner {
    plan: Plan,
    chance: Mutex<StdRng>,
    seen: Mutex<Seen>,
}

/// The events of a simulation.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The number of times that each order was paid.
    pub(crate) paid: BTreeMap<String, u32>,
    /// The orders that a user has approved.
    pub(crate) approved: BTreeSet<String>,
    /// The orders that a user was told to be paid.
    pub(crate) told: BTreeSet<String>,
    /// The times at which each provider was called.
    pub(crate) calls: BTreeMap<&'static str, Vec<Duration>>,
    /// The number of model calls that followed a user's words, and of the requests with them.
    pub(crate) model_calls: BTreeMap<String, u64>,
    pub(crate) requests: BTreeMap<String, u64>,
    /// The users whose every order has ended.
    pub(crate) done: BTreeSet<String>,
    /// The questions that were asked, and those that were answered, by kind.
    pub(crate) asked: BTreeMap<String, u32>,
    /// The number of times that something went wrong, by what it was.
    pub(crate) faults: BTreeMap<&'static str, u32>,
    /// The requests of each user, with their answers.
    pub(crate) notes: BTreeMap<String, Vec<String>>,
    /// A hash of all notes, in their order: the same in each simulation of a plan.
    pub(crate) hash: u64,
    /// The hosts that cannot reach the database.
    pub(crate) cut_off: BTreeSet<&'static str>,
}

impl World {
    pub(crate) fn new(plan: Plan) -> Self {
        let chance = StdRng::seed_from_u64(plan.seed);
        Self(Arc::new(Inner {
            plan,
            chance: Mutex::new(chance),
            seen: Mutex::default(),
        }))
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.0.plan
    }

    pub(crate) fn has(&self, part: Part) -> bool {
        self.0.plan.without != Some(part)
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().unwrap()
    }

    /// Returns a number below this one.
    pub(crate) fn below(&self, number: u32) -> u32 {
        self.0.chance.lock().unwrap().random_range(0..number)
    }

    /// Returns whether something happens that happens once in this many times.
    pub(crate) fn once_in(&self, times: u32) -> bool {
        self.below(times) == 0
    }

    /// Returns a time up to this one.
    pub(crate) fn time(&self, most: Duration) -> Duration {
        let millis = u32::try_from(most.as_millis()).unwrap();
        Duration::from_millis(self.below(millis + 1).into())
    }

    /// Returns when each user comes, in order.
    pub(crate) fn arrivals(&self) -> Vec<Duration> {
        let plan = self.plan();
        let mut arrivals = Vec::new();
        while arrivals.len() < plan.users as usize {
            let time = self.time(plan.time);
            let of_day = time.as_secs_f64() / plan.time.as_secs_f64() * f64::from(plan.days);
            // From 0 at midnight to 1 at noon, or 0 at all times.
            let light = (1.0 - (of_day * std::f64::consts::TAU).cos()) / 2.0;
            if plan.days == 0 || f64::from(self.below(1000)) < light * 1000.0 {
                arrivals.push(time);
            }
        }
        arrivals.sort();
        arrivals
    }

    /// Notes that something went wrong.
    pub(crate) fn fault(&self, what: &'static str) {
        *self.seen().faults.entry(what).or_default() += 1;
    }

    /// Notes an answer that a user had.
    pub(crate) fn note(&self, user: &str, note: String) {
        let seen = &mut *self.seen();
        let mut hasher = DefaultHasher::new();
        (seen.hash, user, &note).hash(&mut hasher);
        seen.hash = hasher.finish();
        seen.notes.entry(user.to_owned()).or_default().push(note);
    }

    /// Returns the notes of the user whom a violation names.
    pub(crate) fn notes_about(&self, violation: &str) -> Vec<String> {
        let seen = self.seen();
        let mut words = violation.split(|letter: char| letter != '-' && !letter.is_alphanumeric());
        let notes = words.find_map(|word| seen.notes.get(word));
        notes.cloned().unwrap_or_default()
    }

    /// Returns what must not have happened.
    pub(crate) fn violations(&self) -> Vec<String> {
        let seen = self.seen();
        let mut found = Vec::new();
        for (order, times) in &seen.paid {
            if *times > 1 {
                found.push(format!("{order} was paid {times} times"));
            }
            if !seen.approved.contains(order) {
                found.push(format!("{order} was paid without an approval"));
            }
        }
        for order in &seen.told {
            if !seen.paid.contains_key(order) {
                found.push(format!("{order} was told to be paid, and is not"));
            }
        }
        for (provider, calls) in &seen.calls {
            if let Some(at) = past_limit(calls) {
                found.push(format!("{provider} was called too often at {at:?}"));
            }
        }
        for (words, calls) in &seen.model_calls {
            // Each request is a run, with a budget of its own.
            let most = CALLS * seen.requests.get(words).copied().unwrap_or_default();
            if *calls > most {
                found.push(format!("{calls} model calls for `{words}`, of {most}"));
            }
        }
        for user in 0..self.0.plan.users {
            let user = format!("user-{user}");
            if !seen.done.contains(&user) {
                found.push(format!("{user} is stuck"));
            }
        }
        found
    }
}

/// Returns when more calls had come than the limit lets through, if they had. A call may take a
/// second on its way, so that the calls of a period and a second come together.
fn past_limit(calls: &[Duration]) -> Option<Duration> {
    let slack = Duration::from_secs(1);
    let rate = LIMIT as f64 / PERIOD.as_secs_f64();
    let at_once = LIMIT as f64 * BURST + 1.0;
    for (first, begin) in calls.iter().enumerate() {
        for (count, end) in calls[first..].iter().enumerate() {
            let time = *end - *begin + slack;
            if (count + 1) as f64 > at_once + rate * time.as_secs_f64() {
                return Some(*end);
            }
            if *end - *begin > PERIOD {
                break;
            }
        }
    }
    None
}
