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
mod scenes;
pub(crate) mod server;

use proptest::prelude::*;

use crate::random;
use run::run;

/// A few seconds of random programs.
pub(crate) fn config() -> ProptestConfig {
    random::config(600)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_program_gives_the_same_on_the_queues_and_the_model(program in program::programs()) {
        run(&program);
    }
}
