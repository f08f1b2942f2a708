//! A server that comes back in another time namespace, as a container may: another boot-time clock under the same boot id.

use mortise_harness::{Server, Shutdown, cmd, hold_of, int, time_namespaces_work};

const LEASE: i64 = 600_000;

/// A lock is held, and the server comes back with each of these clocks, one after the other.
fn leases_survive(builder: mortise_harness::Builder, how: Shutdown) {
    let mut server = builder.start();
    let token = int(&cmd!(server.connect(), "LOCK.ACQUIRE key a {LEASE}"));
    let mut before = LEASE;
    for offset in [Some(100_000), Some(200_000), None] {
        server.set_boot_offset(offset);
        server.restart(how);
        let hold = hold_of(&mut server.connect(), "key", "a").expect("a hold");
        assert_eq!(hold.token, token);
        // By the wall clock, as after a reboot of the machine, and never longer than it was.
        assert!(
            (LEASE / 2..=before).contains(&hold.lease),
            "{offset:?} {}",
            hold.lease
        );
        before = hold.lease;
    }
}

#[test]
fn a_hold_outlives_a_move_to_another_time_namespace() {
    if !time_namespaces_work() {
        eprintln!("skipped: no time namespaces here");
        return;
    }
    leases_survive(Server::builder(), Shutdown::Save);
    let appends = Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always");
    leases_survive(appends, Shutdown::AsConfigured);
}
