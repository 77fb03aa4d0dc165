//! A small harness. Contestants take turns in one process, a millisecond each, so that disturbances
//! of the machine affect all of them alike. The result is the median over all rounds; differences
//! are taken within a round.

#![allow(
    dead_code,
    reason = "every bench is a program of its own and uses a part of this"
)]
#![allow(missing_docs, unreachable_pub)]

pub mod allocations;
pub mod work;

use std::hint::black_box;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use self::allocations::Allocations;
#[allow(unused_imports, reason = "every bench uses a part of this")]
pub use self::work::finish;

const TURN: Duration = Duration::from_millis(1);

/// Keeps this thread and those that it starts on one CPU, and says so where it cannot.
///
/// Waking an idle virtual CPU is charged to the thread that waits. It is no work of any contestant
/// and differs between machines: on one it took longer than the remaining call.
pub fn pin() {
    if let Err(reason) = pin_to_one() {
        println!("Not pinned to one CPU ({reason}): a wait may include the time to wake another.");
    }
}

#[cfg(target_os = "linux")]
fn pin_to_one() -> std::io::Result<()> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    let allowed = sched_getaffinity(None)?;
    let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
    let mut one = CpuSet::new();
    one.set(first.ok_or_else(|| std::io::Error::other("no CPU is allowed"))?);
    Ok(sched_setaffinity(None, &one)?)
}

#[cfg(not(target_os = "linux"))]
fn pin_to_one() -> std::io::Result<()> {
    Err(std::io::Error::other("only done on Linux"))
}

/// A set of contestants.
pub struct Race<'a> {
    contestants: Vec<Contestant<'a>>,
    clock: fn() -> Duration,
    rounds: usize,
}

struct Contestant<'a> {
    run: Box<dyn FnMut() + 'a>,
    per_turn: u32,
    measured: Measured,
}

/// The measurements of a contestant.
pub struct Measured {
    pub name: String,
    /// Allocations of one warm run.
    pub allocations: Allocations,
    /// Time of one run, by round.
    nanoseconds: Vec<f64>,
}

impl Default for Race<'_> {
    fn default() -> Self {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        Self::new(|| START.elapsed(), 301)
    }
}

impl<'a> Race<'a> {
    /// Creates a bench with this many rounds, unless `ROUNDS` is set, and the caller's clock.
    pub fn new(clock: fn() -> Duration, rounds: usize) -> Self {
        Self {
            contestants: Vec::new(),
            clock,
            rounds: self::rounds(rounds),
        }
    }

    /// Adds a contestant.
    pub fn enter<T>(&mut self, name: impl Into<String>, mut run: impl FnMut() -> T + 'a) {
        let mut run: Box<dyn FnMut() + 'a> = Box::new(move || drop(black_box(run())));
        run();
        let allocations = allocations::of(&mut run);
        let measured = Measured {
            name: name.into(),
            allocations,
            nanoseconds: Vec::new(),
        };
        self.contestants.push(Contestant {
            run,
            per_turn: 1,
            measured,
        });
    }

    /// Runs all contestants in turn. The order changes from round to round.
    pub fn run(self) -> Vec<Measured> {
        let Self {
            mut contestants,
            clock,
            rounds,
        } = self;
        if rounds > 1 {
            contestants.iter_mut().for_each(Contestant::calibrate);
        }
        for round in 0..rounds {
            for place in 0..contestants.len() {
                let next = (place + round) % contestants.len();
                contestants[next].turn(clock);
            }
        }
        contestants
            .into_iter()
            .map(|contestant| contestant.measured)
            .collect()
    }
}

impl Contestant<'_> {
    fn calibrate(&mut self) {
        let start = Instant::now();
        let mut runs = 0;
        while start.elapsed() < 20 * TURN {
            (self.run)();
            runs += 1;
        }
        self.per_turn = (runs / 20).max(1);
    }

    fn turn(&mut self, clock: fn() -> Duration) {
        let start = clock();
        for _ in 0..self.per_turn {
            (self.run)();
        }
        let nanoseconds = (clock() - start).as_nanos() as f64 / f64::from(self.per_turn);
        self.measured.nanoseconds.push(nanoseconds);
    }
}

impl Measured {
    /// Returns the median time of a run, in nanoseconds.
    pub fn nanoseconds(&self) -> f64 {
        median(self.nanoseconds.iter().copied())
    }

    /// Returns how many nanoseconds a run takes more than one of `base`.
    pub fn over(&self, base: &Self) -> f64 {
        median(self.rounds_beside(base).map(|(mine, its)| mine - its))
    }

    /// Returns the ratio of the time of a run to that of `base`.
    pub fn ratio(&self, base: &Self) -> f64 {
        median(self.rounds_beside(base).map(|(mine, its)| mine / its))
    }

    fn rounds_beside(&self, base: &Self) -> impl Iterator<Item = (f64, f64)> {
        self.nanoseconds
            .iter()
            .copied()
            .zip(base.nanoseconds.iter().copied())
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// One round under `cargo test`, which only checks that the benches run.
fn rounds(usual: usize) -> usize {
    let rounds = std::env::var("ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok());
    if is_bench() {
        rounds.unwrap_or(usual)
    } else {
        1
    }
}

/// Returns whether this is `cargo bench`, and not `cargo test`.
pub fn is_bench() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}
