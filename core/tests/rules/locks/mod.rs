//! The lock, compared with a naive model of the contract: random programs run on both, and after every step
//! every reply and every state must agree. `PROPTEST_CASES` sets how many programs.

mod perform;
pub(crate) mod program;
mod reference;
mod replica;
pub(crate) mod run;

use proptest::prelude::*;

use mortise_core::{How, Mode};

use program::{Deed, Fence, Ownership, Pause, Program, Step, Who};
use run::run;

proptest! {
    #![proptest_config(crate::random::config(2_000))]

    #[test]
    fn every_program_gives_the_same_on_the_lock_and_the_model(program in program::programs()) {
        run(&program);
    }
}

/// `steps` on one key, a year after 2000, on a replica whose boot clock is ahead.
fn program(steps: Vec<Step>) -> Program {
    Program {
        boot: 1 << 40,
        wall: 978_307_200_000_000,
        skew: 1 << 39,
        steps,
    }
}

fn at_once(deed: Deed) -> Step {
    Step {
        pause: Pause::Millis(0),
        wall: 0,
        key: 0,
        deed,
        heard: true,
    }
}

fn acquire(owner: usize, mode: Mode, holds: Option<u32>) -> Step {
    at_once(Deed::Acquire {
        owner: Who::Anybody(owner),
        mode,
        lease: 1_000,
        holds,
        limit: None,
        fence: Fence::None,
        token: Ownership::Unnamed,
        client: 7,
    })
}

fn release(owner: usize, how: How) -> Step {
    at_once(Deed::Release {
        owner: Who::Anybody(owner),
        how,
        token: Ownership::Unnamed,
    })
}

const MOST: Option<u32> = Some((1 << 31) - 1);

#[test]
fn a_count_stops_at_its_bound_in_both_modes() {
    run(&program(vec![
        acquire(0, Mode::Write, MOST),
        acquire(0, Mode::Write, None),
        acquire(0, Mode::Read, MOST),
        acquire(0, Mode::Read, None),
        release(0, How::One(None)),
        release(0, How::One(Some(Mode::Write))),
        acquire(0, Mode::Write, None),
        release(0, How::LeaveAt(u32::MAX, Some(Mode::Read))),
        release(0, How::LeaveAt(0, Some(Mode::Write))),
        release(0, How::All),
    ]));
}

#[test]
fn the_last_of_many_readers_upgrades_at_once() {
    run(&program(vec![
        acquire(0, Mode::Read, None),
        acquire(1, Mode::Read, None),
        acquire(2, Mode::Read, None),
        acquire(1, Mode::Write, None),
        release(0, How::One(None)),
        release(2, How::All),
        acquire(1, Mode::Write, None),
        acquire(0, Mode::Read, None),
        release(1, How::One(Some(Mode::Write))),
        acquire(0, Mode::Read, None),
    ]));
}

#[test]
fn a_count_that_a_grant_has_lowered_stays_lower_when_the_grant_is_undone() {
    for mode in [Mode::Write, Mode::Read] {
        run(&program(vec![
            acquire(0, mode, Some(3)),
            acquire(0, mode, Some(1)),
        ]));
    }
}
