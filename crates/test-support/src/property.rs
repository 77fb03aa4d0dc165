//! Random inputs that can be repeated, and how many of them a test tries.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use proptest::test_runner::{Config, RngSeed};

/// The least number of cases that a sample has, so that a short test keeps them all.
const LEAST: u32 = 256;

/// Returns what a test does by default, or with `AT_LENGTH=1` what it does at length.
pub fn sample<T>(usual: T, at_length: T) -> T {
    // A newcomer's first `cargo test` takes seconds; `.ci/run long` does the rest.
    if std::env::var_os("AT_LENGTH").is_some() {
        at_length
    } else {
        usual
    }
}

/// Returns the seed of a test's random inputs, and prints it for whoever repeats a failure:
/// `PROPTEST_RNG_SEED`, or else another one each time.
pub fn seed() -> u64 {
    let seed = match Config::default().rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().hash_one("seed"),
    };
    println!("PROPTEST_RNG_SEED={seed}");
    seed
}

/// Returns every seventh of these positions, and at length all of them.
pub fn positions(all: Range<usize>) -> impl Iterator<Item = usize> + Clone {
    // A prime: no frame repeats by it, so that each kind of byte comes up.
    all.step_by(sample(7, 1))
}

/// Runs a tenth of this many cases, and at length all of them, from a [`seed`].
pub fn cases(cases: u32) -> Config {
    Config {
        cases: sample(cases.min(LEAST.max(cases / 10)), cases),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed()),
        ..Config::default()
    }
}
