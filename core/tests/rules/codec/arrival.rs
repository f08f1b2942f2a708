//! How much of a lease is left on arrival: never more than remained, and, live or from another machine, never less.

use mortise_core::Instant;
use mortise_core::codec::{Arrival, BootId, Stamp, decode_lock, encode_lock};

use super::spelling::{READER, Spelled, WRITTEN, lock, lock_of, machine};

const LEASE: u64 = 30_000;
const HELD: u64 = 5;

fn same_boot(boot_ms: u64, wall_ms: u64) -> Stamp {
    Stamp {
        boot_id: WRITTEN.boot_id,
        machine: WRITTEN.machine,
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

fn other_machine(boot_ms: u64, wall_ms: u64) -> Stamp {
    Stamp {
        machine: machine(1),
        ..other_boot(boot_ms, wall_ms)
    }
}

/// What is left of the lease of a hold that arrives `here`, and how long it has been held.
fn arrive(arrival: Arrival, here: &Stamp) -> (u64, u64) {
    arrive_of(&lock(7, &[READER]), arrival, here)
}

fn arrive_of(bytes: &[u8], arrival: Arrival, here: &Stamp) -> (u64, u64) {
    let (lock, _) = decode_lock(bytes, arrival, here).expect("bytes of a lock");
    let (_, stake) = lock.holds().next().expect("a hold");
    assert_eq!(lock.mode(here.boot).is_none(), stake.is_over(here.boot));
    let left = stake.deadline.millis_since(here.boot);
    (left, here.boot.millis_since(stake.since))
}

const BOOT: u64 = 1_000_000;
const WALL: u64 = WRITTEN.wall_ms;

/// Fails unless the wall clock decides what is left on arrival, whatever the boot-time clock shows.
#[track_caller]
fn assert_read_by_the_wall_clock(arrive: impl Fn(u64, u64) -> (u64, u64)) {
    for boot in [100_000, BOOT, BOOT + 1_000, 1 << 41] {
        let left = |wall| arrive(boot, wall);
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

/// Fails unless the whole lease is left, whatever the clocks show.
#[track_caller]
fn assert_whole(arrive: impl Fn(u64, u64) -> (u64, u64)) {
    for wall in [0, WALL, WALL + 1_000, WALL * 2, u64::MAX] {
        for boot in [10, 1_000, BOOT, 1 << 41] {
            assert_eq!(arrive(boot, wall), (LEASE, HELD), "{boot} {wall}");
        }
    }
}

#[test]
fn live_bytes_keep_the_whole_remaining_lease_whatever_the_clocks_show() {
    for place in [same_boot, other_boot, other_machine] {
        assert_whole(|boot, wall| arrive(Arrival::Live, &place(boot, wall)));
    }
}

#[test]
fn a_file_of_the_same_boot_is_read_by_the_boot_clock_alone() {
    for wall in [0, WALL, WALL + 3, u64::MAX] {
        for arrival in [Arrival::File, Arrival::ReplicaFile] {
            let left = |boot| arrive(arrival, &same_boot(boot, wall));
            assert_eq!(left(BOOT), (LEASE, HELD));
            assert_eq!(left(BOOT + 1_000), (LEASE - 1_000, HELD + 1_000));
            assert_eq!(left(BOOT + LEASE - 1), (1, HELD + LEASE - 1));
            assert_eq!(left(BOOT + LEASE).0, 0);
            assert_eq!(left(BOOT + 10 * LEASE).0, 0);
            assert_eq!(left(BOOT - 1_000), (LEASE, HELD), "from the future");
        }
    }
}

#[test]
fn a_file_of_another_boot_of_the_same_machine_is_read_by_the_wall_clock_alone() {
    assert_read_by_the_wall_clock(|boot, wall| arrive(Arrival::File, &other_boot(boot, wall)));
}

#[test]
fn a_file_of_a_replica_of_another_boot_keeps_the_whole_remaining_lease() {
    for place in [other_boot, other_machine] {
        assert_whole(|boot, wall| arrive(Arrival::ReplicaFile, &place(boot, wall)));
    }
}

#[test]
fn a_file_of_another_machine_keeps_the_whole_remaining_lease() {
    assert_whole(|boot, wall| arrive(Arrival::File, &other_machine(boot, wall)));
}

#[test]
fn unknown_machines_are_not_the_same() {
    let unknown = |stamp| Stamp {
        machine: None,
        ..stamp
    };
    let mut bytes = Vec::new();
    let read = lock_of(&[(READER.owner.to_vec(), READER.stake())]);
    encode_lock(&read, 7, &unknown(WRITTEN), &mut bytes);
    let nowhere = |boot, wall| unknown(other_boot(boot, wall));
    assert_whole(|boot, wall| arrive_of(&bytes, Arrival::File, &other_boot(boot, wall)));
    assert_whole(|boot, wall| arrive_of(&bytes, Arrival::File, &nowhere(boot, wall)));
    assert_whole(|boot, wall| arrive(Arrival::File, &nowhere(boot, wall)));
}

#[test]
fn a_hold_older_than_the_boot_of_its_new_machine_counts_from_that_boot() {
    assert_eq!(arrive(Arrival::Live, &other_boot(2, WALL)), (LEASE, 2));
}

#[test]
fn a_lease_that_had_ended_when_it_was_written_has_ended_on_arrival() {
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
fn the_longest_encodable_lease_ends_after_all_others() {
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
