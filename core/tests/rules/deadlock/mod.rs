//! The search for deadlocks, compared in random states with an exhaustive search of the whole graph; in single situations; and its cost.
//! `PROPTEST_CASES` sets how many states.

mod cost;
pub(crate) mod crowd;
mod examples;
pub(crate) mod graph;
pub(crate) mod state;
mod story;
mod thousand;

use proptest::prelude::*;

use crate::random;

/// How many states are tried, in a few seconds.
const STATES: u32 = 600;

proptest! {
    #![proptest_config(random::config(STATES))]

    #[test]
    fn the_search_finds_a_cycle_exactly_where_the_graph_has_one(state in state::states()) {
        state::check_every_wait(&state);
    }
}

/// Fewer states, because each costs as much as `times` others.
fn config_of(times: u32) -> ProptestConfig {
    let config = random::config(STATES);
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
