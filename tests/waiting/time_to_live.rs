//! A TTL that a client has set on a lock's key, and later holds.

use mortise_harness::{
    Conn, Server, assert_same_data, cmd, command, granted, holders_of, int, waiter,
};

/// A primary with a replica, and a connection to the primary.
fn pair() -> (Server, Server, Conn) {
    let primary = Server::start();
    let replica = primary.start_replica();
    let conn = primary.connect();
    (primary, replica, conn)
}

/// Checks that only `owner` holds `key`, without a TTL, on both servers.
#[track_caller]
fn holds_without_limit(owner: &str, primary: &Server, replica: &Server) {
    assert_same_data(primary, replica);
    for server in [primary, replica] {
        let mut conn = server.connect();
        assert_eq!(holders_of(&mut conn, "key"), [owner]);
        assert_eq!(int(&cmd!(conn, "PTTL key")), -1);
    }
}

#[test]
fn a_hand_off_clears_a_ttl() {
    // At a release, at the end of all leases, and to one more reader.
    for (holds, end, next) in [
        (&["WLOCK key a 60000"][..], "LOCK.RELEASE key a", "WLOCK"),
        (&["RLOCK key a 1500", "RLOCK key r 1500"], "PING", "WLOCK"),
        (
            &["WLOCK key a 60000", "RLOCK key a 60000"],
            "LOCK.RELEASE key a WRITE",
            "RLOCK",
        ),
    ] {
        let (primary, replica, mut a) = pair();
        for hold in holds {
            cmd!(a, "LOCK.{hold}");
        }
        let mut b = waiter!(primary, "LOCK.{next} key b 60000 WAIT 0");
        cmd!(a, "EXPIRE key 1000");
        cmd!(a, "{end}");
        granted(&mut b);
        assert_eq!(int(&cmd!(a, "PTTL key")), -1);
        cmd!(a, "LOCK.RELEASE key a ALL");
        holds_without_limit("b", &primary, &replica);
    }
}

#[test]
fn an_acquire_after_the_last_lease_clears_a_ttl() {
    let (primary, replica, mut a) = pair();
    cmd!(a, "LOCK.ACQUIRE key a 100");
    cmd!(a, "EXPIRE key 1000");
    // No timer can run between the two, so only the acquire notices that the lease is over.
    let steps = [
        command!("DEBUG SLEEP 0.2"),
        command!("LOCK.ACQUIRE key b 60000"),
    ];
    for reply in a.pipeline(&steps) {
        reply.unwrap();
    }
    holds_without_limit("b", &primary, &replica);
}

#[test]
fn a_reentry_keeps_a_ttl() {
    let (primary, replica, mut a) = pair();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    cmd!(a, "EXPIRE key 1000");
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    assert!(int(&cmd!(a, "TTL key")) > 900);
    assert_same_data(&primary, &replica);
}
