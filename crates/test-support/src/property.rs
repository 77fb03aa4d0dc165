//! Property tests that can be run again.

use std::hash::{BuildHasher, RandomState};

use proptest::test_runner::{Config, RngSeed};

/// So many cases, from a seed that a failure shows. `PROPTEST_RNG_SEED` sets it.
pub fn cases(cases: u32) -> Config {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().hash_one(cases),
    };
    println!("PROPTEST_RNG_SEED={seed}");
    Config { rng_seed: RngSeed::Fixed(seed), ..config }
}
