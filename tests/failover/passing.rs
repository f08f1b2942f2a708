//! A failover loses a pass: the promoted server has the hold of the old name, while the new name believes in its own.
//!
//! ```text
//!  primary   ──a holds──╳ cut ──PASS a b: OK──
//!  b                            ├── believes ─────────────────┤
//!  replica   ──a holds─────────promoted──┤ a is over          ╎
//!                                        ├─ without a grace: c ├─ with one, much later: c
//! ```

use std::time::{Duration, Instant};

use mortise_harness::{
    Server, eventually, granted, hold_of, int, is_nil, replicated_over_link, try_cmd,
    wait_for_sync_over, waiter,
};

use crate::pair::{await_on_time, configure, promote};

const MAX_LEASE: u64 = 2_000;
/// Longest lease, a lag of one second, and 3 seconds.
const GRACE: u64 = MAX_LEASE + 1_000 + 3_000;
/// What is left of the old name's lease at the pass: far less than the new one's.
const SHORT: u64 = 600;
const ATTEMPTS: u32 = 12;

fn server() -> mortise_harness::Builder {
    Server::builder()
        .module_arg("max-lease", &MAX_LEASE.to_string())
        .config("min-replicas-max-lag", "1")
}

/// Whether another owner was granted the lock while the new owner believed in its hold; `None` if the machine was too slow for the pass.
fn two_inside(grace: u64) -> Option<bool> {
    let (primary, replica, link) = replicated_over_link(server);
    for server in [&replica, &primary] {
        configure(server, grace, 1);
    }
    await_on_time(&primary);
    let mut old = primary.connect();
    let token = eventually("the primary accepts writes", || {
        let token = try_cmd!(old, "LOCK.ACQUIRE", "key", "a", SHORT, "HOLDS", 1);
        token.map(|token| int(&token))
    });
    wait_for_sync_over(&link, &primary, &replica);
    link.cut();
    let sent = Instant::now();
    let passed = try_cmd!(old, "LOCK.PASS", "key", "a", "b", MAX_LEASE, "TOKEN", token);
    let passed = passed.ok().filter(|reply| !is_nil(reply))?;
    let passed = int(&passed);
    let lease = Duration::from_millis(MAX_LEASE);
    let believed = sent + lease - lease / 100 - Duration::from_millis(2);
    promote(&replica);
    let mut new = replica.connect();
    // Here neither name holds by the new token.
    assert!(hold_of(&mut new, "key", "b").is_none());
    for owner in ["a", "b"] {
        let again = try_cmd!(new, "LOCK.PASS", "key", owner, "z", 1, "TOKEN", passed);
        assert!(again.is_ok_and(|reply| is_nil(&reply)), "{owner}");
    }
    let mut c = waiter!(replica, "LOCK.ACQUIRE", "key", "c", MAX_LEASE, "WAIT", 0);
    let next = granted(&mut c);
    let two = Instant::now() < believed;
    assert!(next > passed, "the tokens differ");
    Some(two)
}

/// Repeats the run until it has a result, a few times at most.
fn runs(grace: u64) -> impl Iterator<Item = bool> {
    (0..ATTEMPTS).filter_map(move |_| two_inside(grace))
}

#[test]
fn a_pass_that_a_failover_loses_leaves_no_two_inside() {
    let first = runs(GRACE).next();
    assert_eq!(
        first,
        Some(false),
        "two inside, or no pass in {ATTEMPTS} attempts"
    );
}

#[test]
fn without_a_grace_a_pass_that_a_failover_loses_leaves_two_inside() {
    let found = runs(0).any(|two| two);
    assert!(found, "{ATTEMPTS} runs have found no other holder");
}
