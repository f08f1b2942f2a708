//! The search for deadlocks, compared in random states with an exhaustive search of the whole graph; in single situations; and its cost.
//! `PROPTEST_CASES` sets how many states.

mod cost;
pub(crate) mod crowd;
mod cycles;
pub(crate) mod graph;
mod no_alarm;
pub(crate) mod state;
mod story;
mod tasks;
mod thousand;

use proptest::prelude::*;
use proptest::test_runner::RngAlgorithm;

/// How many states a plain `cargo test` tries, in a few seconds.
const STATES: u32 = 1_000;

fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: match std::env::var("PROPTEST_CASES") {
            Ok(_) => default.cases,
            Err(_) => STATES,
        },
        failure_persistence: None,
        // Without optimisation proptest's default would spend more time on random numbers than on the search.
        rng_algorithm: RngAlgorithm::XorShift,
        ..default
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_search_finds_a_cycle_exactly_where_the_graph_has_one(state in state::states()) {
        state::check_every_wait(&state);
    }
}

/// Fewer states, because each costs as much as `times` others.
fn config_of(times: u32) -> ProptestConfig {
    let config = config();
    let cases = config.cases.div_ceil(times);
    ProptestConfig { cases, ..config }
}

proptest! {
    #![proptest_config(config_of(10))]

    #[test]
    fn a_crowd_outside_every_cycle_hides_none(state in state::states()) {
        state::check_every_wait_in_a_crowd(&state, &state::CROWD);
    }
}

#[test]
fn states_that_once_gave_a_wrong_answer_give_the_right_one() {
    for state in state::found() {
        state::check_every_wait(&state);
    }
}
