//! What clients that confirm their holds rely on: a RENEW that replies a token reaches the replicas, also where it changes nothing.

use mortise_harness::{Server, cmd, eventually, int, is_nil, wait_for_sync};

/// A primary whose stream grows by what commands write, and by nothing else.
fn silent() -> Server {
    Server::builder()
        .config("repl-ping-replica-period", "3600")
        .start()
}

fn offset(primary: &Server) -> u64 {
    primary.replication_offset("master_repl_offset")
}

/// Whether the stream has grown by the time the command has replied a token.
#[track_caller]
fn assert_replicated(primary: &Server, args: &[&str]) {
    let before = offset(primary);
    assert!(!is_nil(&primary.connect().cmd(args)), "{args:?}");
    assert!(offset(primary) > before, "{args:?}");
}

#[test]
fn a_renewal_that_changes_nothing_is_replicated() {
    let primary = silent();
    let mut conn = primary.connect();
    cmd!(conn, "LOCK.ACQUIRE", "early", "a", 600_000);
    let replica = Server::builder().replica_of(&primary).start();
    wait_for_sync(&primary, &replica);
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 600_000)).to_string();
    wait_for_sync(&primary, &replica);
    let applied = replica.calls("LOCK.APPLY");
    let script = "return redis.call('LOCK.RENEW', KEYS[1], 'a', 1)";
    let renewals: [&[&str]; 5] = [
        &["LOCK.RENEW", "key", "a", "1"],
        &["LOCK.RENEW", "key", "a", "1", "TOKEN", &token],
        &["LOCK.RENEW", "key", "a", "1"],
        &[
            "LOCK.GUARD",
            "key",
            "a",
            &token,
            "LOCK.RENEW",
            "key",
            "a",
            "1",
        ],
        &["EVAL", script, "1", "early"],
    ];
    for renewal in renewals {
        assert_replicated(&primary, renewal);
    }
    assert_eq!(int(&cmd!(conn, "WAIT", 1, 10_000)), 1);
    eventually("the replica applies each", || {
        replica.calls("LOCK.APPLY") == applied + renewals.len() as u64
    });
    let before = offset(&primary);
    assert!(is_nil(&cmd!(conn, "LOCK.RENEW", "key", "b", 1)));
    assert_eq!(offset(&primary), before, "null writes nothing");
}

#[test]
fn a_renewal_is_replicated_to_a_replica_that_came_when_there_was_none() {
    let primary = silent();
    let mut conn = primary.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 600_000);
    // The module stops building effects when it has seen that nobody gets them, within a second or two.
    cmd!(conn, "LOCK.ACQUIRE", "other", "a", 2_500);
    cmd!(conn, "LOCK.ACQUIRE", "other", "b", 600_000, "WAIT", 0);
    let replica = Server::builder().replica_of(&primary).start();
    wait_for_sync(&primary, &replica);
    assert_replicated(&primary, &["LOCK.RENEW", "key", "a", "1"]);
    assert_eq!(int(&cmd!(conn, "WAIT", 1, 10_000)), 1);
    // A replica that comes back gets what was written while it was away.
    drop(replica);
    eventually("it is gone", || {
        primary.info("replication")["connected_slaves"] == "0"
    });
    cmd!(conn, "LOCK.ACQUIRE", "third", "a", 2_500);
    cmd!(conn, "LOCK.ACQUIRE", "third", "b", 600_000, "WAIT", 0);
    assert_replicated(&primary, &["LOCK.RENEW", "key", "a", "1"]);
}
