//! How random programs are made.

use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngAlgorithm;

/// `cases` of them, or as many as `PROPTEST_CASES` says.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: match std::env::var("PROPTEST_CASES") {
            Ok(_) => default.cases,
            Err(_) => cases,
        },
        failure_persistence: None,
        // Without optimisation proptest's default would spend more time on random numbers than on what is tested.
        rng_algorithm: RngAlgorithm::XorShift,
        ..default
    }
}
