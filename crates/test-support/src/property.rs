//! Property tests that can be repeated.

use std::hash::{BuildHasher, RandomState};

use proptest::test_runner::{Config, RngSeed};

/// Runs this many cases from a seed, which a failure prints. `PROPTEST_RNG_SEED` sets it.
/// `PROPERTY_TIMES` multiplies the number of cases, for a longer search.
pub fn cases(cases: u32) -> Config {
    let times = std::env::var("PROPERTY_TIMES").map_or(1, |times| times.parse::<u32>().unwrap());
    let cases = cases * times;
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
