//! The lock, compared with a naive model of the contract: random programs run on both, and after every step
//! every reply and every state must agree. `PROPTEST_CASES` sets how many programs.

mod perform;
pub(crate) mod program;
mod reference;
mod replica;
pub(crate) mod run;

use proptest::prelude::*;

use run::run;

proptest! {
    #![proptest_config(crate::random::config(1_200))]

    #[test]
    fn every_program_gives_the_same_on_the_lock_and_the_model(program in program::programs()) {
        run(&program);
    }
}
