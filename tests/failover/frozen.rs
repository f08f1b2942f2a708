//! Failover without two holders after the old primary was frozen: it wakes after its successor's grace, and still takes its
//! replicas to be attached.
//!
//! ```text
//!   primary    ──grants──❄❄❄❄❄❄❄❄❄❄❄❄❄❄❄❄❄❄ wakes
//!   replica         promoted ····· grace ····· grants ──
//! ```

use std::time::{Duration, Instant};

use mortise_harness::{ClockStep, Contenders, Record, assert_finds_two_inside, eventually_within};

use crate::trio::{ATTEMPTS, LEASE, ROLES, SAFE, Settings, Trio, await_grants};

/// What is frozen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Frozen {
    /// The server's process. When it wakes, the wall clock shows the gap, and within a second it counts its replicas again.
    Process,
    /// The machine with its wall clock, as in a snapshot. To it, its replicas have just replied, so they count for at
    /// least another second.
    Machine,
}

fn primary_freezes(settings: Settings, what: Frozen) -> Record {
    let trio = Trio::start_with(settings, |primary| {
        // While attached replicas acknowledge nothing, nothing is granted anyway.
        primary.clock_shim().config("repl-timeout", "15")
    });
    let clients = Contenders::start(&ROLES, "key", trio.primary.port(), LEASE);
    await_grants(&clients, &trio.primary, 5);
    trio.refresh();
    // Its replicas are gone, but it cannot notice.
    for link in &trio.links {
        link.cut();
    }
    trio.primary.stop_signal();
    let since = Instant::now();
    trio.promote();
    trio.expect_replicas(0);
    clients.go_to(trio.replicas[0].port());
    await_grants(&clients, &trio.replicas[0], 2);
    if what == Frozen::Machine {
        trio.primary.step_clock(ClockStep::Back(since.elapsed()));
    }
    trio.primary.cont_signal();
    let patience = Duration::from_secs(60);
    eventually_within(patience, "it has counted, and its guard has ended", || {
        let good = trio.primary.info("replication")["min_slaves_good_slaves"].clone();
        let seen = (good, trio.primary.gauge("grace_left_ms"));
        if seen == ("0".to_owned(), 0) {
            Ok(())
        } else {
            Err(seen)
        }
    });
    await_grants(&clients, &trio.replicas[0], 2);
    clients.stop()
}

#[test]
fn a_primary_that_wakes_after_the_grace_grants_nothing() {
    primary_freezes(SAFE, Frozen::Process).assert_exclusive();
}

#[test]
fn a_primary_whose_machine_wakes_after_the_grace_grants_nothing() {
    primary_freezes(SAFE, Frozen::Machine).assert_exclusive();
}

#[test]
fn without_its_guard_a_primary_that_wakes_after_the_grace_leaves_two_inside() {
    assert_finds_two_inside(ATTEMPTS, || {
        let settings = Settings { guard: 0, ..SAFE };
        primary_freezes(settings, Frozen::Machine)
    });
}
