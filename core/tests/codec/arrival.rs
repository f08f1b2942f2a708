//! How much of a lease is left on arrival. Never more than remained; live, never less.

use mortise_core::Instant;
use mortise_core::codec::{Arrival, BootId, Stamp, decode_lock};

use super::spelling::{READER, Spelled, WRITTEN, lock};

const LEASE: u64 = 30_000;
const HELD: u64 = 5;

fn same_boot(boot_ms: u64, wall_ms: u64) -> Stamp {
    Stamp {
        boot_id: WRITTEN.boot_id,
        boot: Instant::from_millis(boot_ms),
        wall_ms,
    }
}

fn other_boot(boot_ms: u64, wall_ms: u64) -> Stamp {
    Stamp {
        boot_id: BootId([0xee; 16]),
        ..same_boot(boot_ms, wall_ms)
    }
}

/// What is left of the lease, and for how long it has been held, of a hold that arrives `here`.
fn arrive(arrival: Arrival, here: &Stamp) -> (u64, u64) {
    let bytes = lock(7, &[READER]);
    let (lock, _) = decode_lock(&bytes, arrival, here).expect("bytes of a lock");
    let (_, stake) = lock.holds().next().expect("a hold");
    assert_eq!(lock.mode(here.boot).is_none(), stake.is_over(here.boot));
    let left = stake.deadline.millis_since(here.boot);
    (left, here.boot.millis_since(stake.since))
}

const BOOT: u64 = 1_000_000;
const WALL: u64 = WRITTEN.wall_ms;

#[test]
fn live_bytes_bring_the_whole_remaining_lease_whatever_the_clocks_say() {
    for boot in [10, 1_000, BOOT, 1 << 41] {
        for wall in [0, WALL, WALL * 2, u64::MAX] {
            for here in [same_boot(boot, wall), other_boot(boot, wall)] {
                assert_eq!(arrive(Arrival::Live, &here), (LEASE, HELD), "{here:?}");
            }
        }
    }
}

#[test]
fn a_file_of_the_same_boot_is_read_by_the_boot_clock_alone() {
    for wall in [0, WALL, WALL + 3, u64::MAX] {
        let left = |boot| arrive(Arrival::File, &same_boot(boot, wall));
        assert_eq!(left(BOOT), (LEASE, HELD));
        assert_eq!(left(BOOT + 1_000), (LEASE - 1_000, HELD + 1_000));
        assert_eq!(left(BOOT + LEASE - 1), (1, HELD + LEASE - 1));
        assert_eq!(left(BOOT + LEASE).0, 0);
        assert_eq!(left(BOOT + 10 * LEASE).0, 0);
        assert_eq!(left(BOOT - 1_000), (LEASE, HELD), "from the future");
    }
}

#[test]
fn a_file_of_another_boot_is_read_by_the_wall_clock_alone() {
    for boot in [100_000, BOOT, BOOT + 1_000, 1 << 41] {
        let left = |wall| arrive(Arrival::File, &other_boot(boot, wall));
        assert_eq!(left(WALL), (LEASE, HELD));
        assert_eq!(left(WALL + 1_000), (LEASE - 1_000, HELD + 1_000));
        assert_eq!(left(WALL + LEASE - 1), (1, HELD + LEASE - 1));
        assert_eq!(left(WALL + LEASE).0, 0);
        assert_eq!(left(u64::MAX).0, 0);
        assert_eq!(
            left(WALL - 86_400_000),
            (LEASE, HELD),
            "the clock stepped back"
        );
        assert_eq!(left(0), (LEASE, HELD));
    }
}

#[test]
fn a_file_of_a_replica_is_read_by_the_boot_clock_or_brings_the_whole_remaining_lease() {
    for wall in [0, WALL, WALL + 1_000, WALL * 2, u64::MAX] {
        let arrive = |here| arrive(Arrival::ReplicaFile, &here);
        let passed = (LEASE - 1_000, HELD + 1_000);
        assert_eq!(arrive(same_boot(BOOT + 1_000, wall)), passed);
        assert_eq!(arrive(same_boot(BOOT + LEASE, wall)).0, 0);
        for boot in [10, BOOT, 1 << 41] {
            assert_eq!(arrive(other_boot(boot, wall)), (LEASE, HELD));
        }
    }
}

#[test]
fn a_hold_older_than_the_machine_it_arrives_on_began_when_that_started() {
    assert_eq!(arrive(Arrival::Live, &other_boot(2, WALL)), (LEASE, 2));
}

#[test]
fn a_lease_that_was_over_when_it_was_written_is_over_on_arrival() {
    let over = Spelled {
        remaining: 0,
        ..READER
    };
    let bytes = lock(7, &[over]);
    for here in [same_boot(BOOT, WALL), other_boot(5, 0)] {
        for arrival in [Arrival::Live, Arrival::File] {
            let (mut lock, _) = decode_lock(&bytes, arrival, &here).expect("bytes of a lock");
            assert_eq!(lock.mode(here.boot), None);
            let mut ended = 0;
            lock.at(here.boot, |_, _| ended += 1);
            assert!(lock.is_free());
            assert_eq!(ended, 1);
        }
    }
}

#[test]
fn the_longest_lease_that_can_be_written_ends_after_all_others() {
    let long = Spelled {
        remaining: 1 << 53,
        held: 1 << 53,
        ..READER
    };
    let here = other_boot(1 << 41, u64::MAX);
    let bytes = lock(7, &[long]);
    let (lock, _) = decode_lock(&bytes, Arrival::Live, &here).expect("bytes of a lock");
    assert_eq!(
        lock.next_deadline(),
        Some(Instant::from_millis((1 << 42) - 1))
    );
}
