//! Replicas that become primaries, and primaries that become replicas.

use mortise_harness::{
    Server, Snapshot, assert_same_data, cmd, eventually, int, is_nil, text, try_cmd, wall_micros,
};

use super::{assert_same_holds, make_history, replica_of};

#[test]
fn a_promoted_replica_has_the_same_holds_and_grants_higher_tokens() {
    let mut primary = Server::start();
    let replica = replica_of(&primary);
    let last = wall_micros() + 1_800_000_000;
    cmd!(primary.connect(), "LOCK.ACQUIRE key a 600000 FENCE {last}");
    cmd!(primary.connect(), "LOCK.ACQUIRE", "short", "a", 3_000);
    assert_same_data(&primary, &replica);
    let before = Snapshot::take(&primary);
    primary.sigkill();
    let mut conn = replica.connect();
    cmd!(conn, "REPLICAOF", "NO", "ONE");
    Snapshot::take(&replica).assert_no_lease_is_shorter(&before);
    assert!(is_nil(&cmd!(conn, "LOCK.RLOCK", "key", "b", 1_000)));
    assert_eq!(
        int(&cmd!(conn, "LOCK.RENEW", "key", "a", 1_000, "TOKEN", last)),
        last
    );
    assert!(int(&cmd!(conn, "LOCK.ACQUIRE", "other", "b", 1_000)) > last);
    assert_eq!(
        int(&cmd!(conn, "LOCK.RELEASE", "key", "a", "TOKEN", last)),
        0
    );
    eventually("it sweeps now", || int(&cmd!(conn, "EXISTS", "short")) == 0);
}

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
