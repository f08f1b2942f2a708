//! A primary needs both its replicas, and one has old data. If the primary counted only the prompt one, it would go on granting
//! after the other is promoted.

use std::time::Duration;

use mortise_harness::redis::Value;
use mortise_harness::{
    Link, Server, cmd, eventually, eventually_within, granted, is_nil, try_cmd, wait_for_sync_over,
    waiter,
};

use crate::pair::{GRACE, MAX_LEASE, PATIENCE, builder, configure};

#[test]
fn a_primary_that_needs_two_replicas_grants_nothing_while_one_of_them_is_late() {
    let primary = builder().start();
    let links = [Link::to(&primary), Link::to(&primary)];
    let replicas = links.each_ref().map(|link| {
        let replica = builder().replica_over(link).start();
        wait_for_sync_over(link, &primary, &replica);
        replica
    });
    configure(&primary, GRACE, 2);
    let mut conn = primary.connect();
    for (link, replica) in links.iter().zip(&replicas) {
        eventually_within(PATIENCE, "both are prompt, and the primary grants", || {
            matches!(
                try_cmd!(conn, "LOCK.ACQUIRE", "mine", "a", MAX_LEASE),
                Ok(Value::Int(_))
            )
        });
        link.hold_stream();
        eventually("the primary notices", || late(&primary));
        // The server itself still counts both.
        assert_eq!(primary.info("replication")["min_slaves_good_slaves"], "2");
        assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE", "key", "b", 1_000)));
        let error = try_cmd!(conn, "LOCK.RENEW", "mine", "a", MAX_LEASE).unwrap_err();
        assert!(error.starts_with("TRYAGAIN "), "{error}");
        let mut waiting = waiter!(primary, "LOCK.ACQUIRE", "key", "b", 1_000, "WAIT", 0);
        assert!(waiting.recv_within(Duration::from_millis(300)).is_none());
        link.release_stream();
        granted(&mut waiting);
        wait_for_sync_over(link, &primary, replica);
    }
}

fn late(primary: &Server) -> bool {
    primary.gauge("replicas_late") == 1
}
