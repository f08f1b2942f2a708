//! The queues, compared with a naive model of the contract: random programs run on both, and after every
//! step every decision and every state must agree. `PROPTEST_CASES` sets how many programs.

mod compare;
mod cost;
mod exhaustive;
mod memory;
pub(crate) mod program;
mod reference;
mod rules;
pub(crate) mod run;
pub(crate) mod server;

use proptest::prelude::*;
use proptest::test_runner::RngAlgorithm;

use run::run;

/// How many programs a plain `cargo test` runs, in a few seconds.
const PROGRAMS: u32 = 1_000;

pub(crate) fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: match std::env::var("PROPTEST_CASES") {
            Ok(_) => default.cases,
            Err(_) => PROGRAMS,
        },
        failure_persistence: None,
        // Without optimisation proptest's default would spend more time on random numbers than on the queues.
        rng_algorithm: RngAlgorithm::XorShift,
        ..default
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_program_gives_the_same_on_the_queues_and_the_model(program in program::programs()) {
        run(&program);
    }
}
