//! Replicas that become primaries, and primaries that become replicas.

use mortise_harness::{Server, assert_same_data, cmd, int, is_nil, make_history, text, try_cmd};

use super::{assert_same_holds, replica_of};

#[test]
fn a_promoted_replica_renews_no_revoked_hold() {
    let mut primary = Server::start();
    let early = replica_of(&primary);
    for key in ["key", "free"] {
        cmd!(primary.connect(), "LOCK.ACQUIRE", key, "a", 600_000);
        cmd!(primary.connect(), "LOCK.REVOKE", key, "a");
    }
    cmd!(primary.connect(), "LOCK.LEAVE", "free", "a");
    cmd!(primary.connect(), "LOCK.ACQUIRE", "free", "a", 600_000);
    // One replica has the mark from an effect, one from a full sync, and one from another replica's effects.
    let late = replica_of(&primary);
    let chained = replica_of(&early);
    for (from, to) in [(&primary, &early), (&primary, &late), (&early, &chained)] {
        assert_same_data(from, to);
    }
    primary.sigkill();
    // A promoted server's changes would reach its own replica.
    for replica in [chained, early, late] {
        let mut conn = replica.connect();
        cmd!(conn, "REPLICAOF", "NO", "ONE");
        assert!(is_nil(&cmd!(conn, "LOCK.RENEW", "key", "a", 600_000)));
        let error = try_cmd!(conn, "LOCK.ACQUIRE", "key", "a", 600_000).unwrap_err();
        assert!(error.starts_with("REVOKED "), "{error}");
        assert!(!is_nil(&cmd!(conn, "LOCK.RENEW", "free", "a", 600_000)));
        assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "key", "a")), 0);
        assert!(!is_nil(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 600_000)));
    }
}

#[test]
fn a_demoted_primary_takes_the_locks_of_its_new_primary() {
    let (old, new) = (Server::start(), Server::start());
    let mut conn = old.connect();
    cmd!(conn, "LOCK.ACQUIRE", "old", "a", 600_000);
    cmd!(conn, "LOCK.ACQUIRE", "short", "a", 50);
    make_history(&mut new.connect());
    cmd!(conn, "REPLICAOF", "127.0.0.1", new.port());
    assert_same_holds(&new, &old);
    let error = try_cmd!(conn, "LOCK.ACQUIRE", "key", "a", 1_000).unwrap_err();
    assert!(error.starts_with("READONLY "), "{error}");
    assert_eq!(text(&cmd!(conn, "TYPE", "old")), "none");
    make_history(&mut new.connect());
    assert_same_holds(&new, &old);
    assert_eq!(old.gauge("locks"), new.gauge("locks"));
}
