//! Property tests that can be repeated.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use proptest::test_runner::{Config, RngSeed};

/// The least number of cases that a sample has, so that a short test keeps them all.
const LEAST: u32 = 256;

/// Returns every seventh of these positions, and with `EVERY_CASE=1` all of them.
pub fn positions(all: Range<usize>) -> impl Iterator<Item = usize> + Clone {
    // A prime: no frame repeats by it, so that each kind of byte comes up.
    let step = if every_case() { 1 } else { 7 };
    all.step_by(step)
}

fn every_case() -> bool {
    std::env::var_os("EVERY_CASE").is_some()
}

/// Runs a tenth of this many cases, and with `EVERY_CASE=1` all of them, from a seed that a failure
/// prints. `PROPTEST_RNG_SEED` sets it.
pub fn cases(cases: u32) -> Config {
    // A newcomer's first `cargo test` takes seconds; the gate runs the rest at its end.
    let cases = if every_case() {
        cases
    } else {
        cases.min(LEAST.max(cases / 10))
    };
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().hash_one(cases),
    };
    println!("PROPTEST_RNG_SEED={seed}");
    Config {
        rng_seed: RngSeed::Fixed(seed),
        ..config
    }
}
