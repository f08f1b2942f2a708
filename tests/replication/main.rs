//! A replica has the same locks as its primary, and grants, ends and changes nothing by itself.

mod confirming;
mod following;
mod links;
mod passing;
mod passive;
mod roles;
mod several;

use mortise_harness::{Conn, Server, Snapshot, assert_same_data, cmd, int, wait_for_sync};

fn replica_of(primary: &Server) -> Server {
    let replica = Server::builder().replica_of(primary).start();
    wait_for_sync(primary, &replica);
    replica
}

/// Fails unless the replica has the primary's holds, and none ends earlier there.
#[track_caller]
fn assert_same_holds(primary: &Server, replica: &Server) {
    assert_same_data(primary, replica);
    let here = Snapshot::take(primary);
    Snapshot::take(replica).assert_no_lease_is_shorter(&here);
}

/// Makes locks of all kinds, by effects of all kinds.
fn make_history(conn: &mut Conn) {
    for db in [0, 9] {
        cmd!(conn, "SELECT", db);
        cmd!(conn, "LOCK.ACQUIRE", "counted", "a", 600_000, "HOLDS", 7);
        cmd!(conn, "LOCK.RLOCK", "counted", "a", 600_000, "HOLDS", 3);
        cmd!(conn, "LOCK.RELEASE", "counted", "a", "WRITE");
        for n in 0..30 {
            cmd!(
                conn,
                "LOCK.RLOCK",
                "read",
                format!("reader:{n}"),
                600_000 + n,
                "HOLDS",
                n + 1
            );
        }
        for n in (0..30).step_by(3) {
            cmd!(conn, "LOCK.RELEASE", "read", format!("reader:{n}"), "ALL");
        }
        cmd!(conn, "LOCK.RLOCK", "upgraded", "a", 600_000);
        cmd!(conn, "LOCK.WLOCK", "upgraded", "a", 600_000);
        cmd!(conn, "LOCK.ACQUIRE", "downgraded", "a", 600_000);
        cmd!(conn, "LOCK.RLOCK", "downgraded", "a", 600_000);
        cmd!(conn, "LOCK.RELEASE", "downgraded", "a", "WRITE");
        let token = int(&cmd!(conn, "LOCK.ACQUIRE", "fenced", "a", 600_000));
        cmd!(conn, "LOCK.FENCE", "fenced", "a", token + 1_000_000);
        cmd!(conn, "LOCK.ACQUIRE", "renewed", "a", 60_000);
        cmd!(conn, "LOCK.RENEW", "renewed", "a", 86_400_000);
        cmd!(conn, "LOCK.WLOCK", "passed", "a", 86_400_000, "HOLDS", 2);
        cmd!(conn, "LOCK.RLOCK", "passed", "a", 86_400_000);
        cmd!(conn, "LOCK.PASS", "passed", "a", "b", 600_000);
        cmd!(conn, "LOCK.RELEASE", "read", "passed on", "ALL");
        cmd!(conn, "LOCK.PASS", "read", "reader:4", "passed on", 700_000);
        for key in ["revoked", "read"] {
            cmd!(conn, "LOCK.LEAVE", key, "revoked");
            cmd!(conn, "LOCK.RLOCK", key, "revoked", 600_000);
            cmd!(conn, "LOCK.REVOKE", key, "revoked");
        }
        cmd!(conn, "LOCK.ACQUIRE", "released", "a", 600_000);
        cmd!(conn, "LOCK.RELEASE", "released", "a");
        cmd!(conn, "LOCK.ACQUIRE", "old name", "a", 600_000);
        cmd!(conn, "RENAME", "old name", "new name");
        cmd!(conn, "LOCK.RLOCK", "new name", "a", 600_000);
        cmd!(conn, "COPY", "read", "copy");
        cmd!(conn, "LOCK.RELEASE", "copy", "reader:1");
        cmd!(conn, "LOCK.ACQUIRE", "deleted", "a", 600_000);
        cmd!(conn, "DEL", "deleted");
        cmd!(
            conn,
            "LOCK.ACQUIRE",
            &b"odd\0\r\n\xff"[..],
            vec![0xff_u8; 255],
            600_000
        );
    }
    cmd!(conn, "SWAPDB", 9, 3);
    cmd!(conn, "SELECT", 0);
}

fn stat(server: &Server, name: &str) -> i64 {
    server.info("stats")[name].parse().unwrap()
}
