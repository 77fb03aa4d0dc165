//! Property tests that can be repeated.

use std::hash::{BuildHasher, RandomState};

use proptest::test_runner::{Config, RngSeed};

/// The least number of cases that a sample has, so that a short test keeps them all.
const LEAST: u32 = 256;

/// Runs a tenth of this many cases, and with `EVERY_CASE=1` all of them, from a seed that a failure
/// prints. `PROPTEST_RNG_SEED` sets it.
pub fn cases(cases: u32) -> Config {
    // A newcomer's first `cargo test` takes seconds; the gate runs the rest at its end.
    let cases = if std::env::var_os("EVERY_CASE").is_some() {
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
