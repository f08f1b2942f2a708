//! Locks with histories of all kinds, for tests of files and replicas.

use crate::cmd;
use crate::conn::Conn;
use crate::value::int;

/// How many locks [`make_history`] leaves.
pub const HISTORY: usize = 28;

/// Makes locks of all kinds in the databases 0 and 9, by effects of all kinds, and a string in each. It can be run again.
///
/// # Panics
/// If the server refuses a command.
#[track_caller]
pub fn make_history(conn: &mut Conn) {
    let most = i32::MAX;
    for db in [9, 0] {
        cmd!(conn, "SELECT", db);
        cmd!(conn, "LOCK.ACQUIRE once a 600000");
        cmd!(conn, "LOCK.ACQUIRE counted a 600000 HOLDS 7");
        cmd!(conn, "LOCK.RLOCK counted a 600000 HOLDS 3");
        cmd!(conn, "LOCK.RELEASE counted a WRITE");
        cmd!(conn, "LOCK.ACQUIRE most a 600000 HOLDS {most}");
        cmd!(conn, "LOCK.RLOCK most a 600000 HOLDS {most}");
        for n in 0..50 {
            let (lease, holds) = (600_000 + 1_000 * n, n + 1);
            cmd!(conn, "LOCK.RLOCK read reader:{n} {lease} HOLDS {holds}");
        }
        for n in (0..50).step_by(3) {
            cmd!(conn, "LOCK.RELEASE read reader:{n} ALL");
        }
        cmd!(conn, "LOCK.RLOCK upgraded a 600000");
        cmd!(conn, "LOCK.WLOCK upgraded a 600000");
        cmd!(conn, "LOCK.ACQUIRE downgraded a 600000");
        cmd!(conn, "LOCK.RLOCK downgraded a 600000");
        cmd!(conn, "LOCK.RELEASE downgraded a WRITE");
        let token = int(&cmd!(conn, "LOCK.RLOCK fenced a 600000"));
        cmd!(conn, "LOCK.FENCE", "fenced", "a", token + 1_000_000);
        cmd!(conn, "LOCK.ACQUIRE renewed a 60000");
        cmd!(conn, "LOCK.RENEW renewed a 86400000");
        cmd!(conn, "LOCK.WLOCK passed a 86400000 HOLDS 2");
        cmd!(conn, "LOCK.RLOCK passed a 86400000");
        cmd!(conn, "LOCK.PASS passed a b 600000");
        cmd!(conn, "LOCK.RELEASE", "read", "passed on", "ALL");
        cmd!(conn, "LOCK.PASS", "read", "reader:4", "passed on", 700_000);
        for key in ["revoked", "read"] {
            cmd!(conn, "LOCK.LEAVE {key} a");
            cmd!(conn, "LOCK.RLOCK {key} a 600000");
            cmd!(conn, "LOCK.REVOKE {key} a");
        }
        cmd!(conn, "LOCK.ACQUIRE released a 600000");
        cmd!(conn, "LOCK.RELEASE released a");
        cmd!(conn, "LOCK.ACQUIRE", "handed on", "a", 600_000);
        cmd!(conn, "LOCK.RELEASE", "handed on", "a");
        cmd!(conn, "LOCK.RLOCK", "handed on", "b", 600_000);
        cmd!(conn, "LOCK.ACQUIRE old a 600000");
        cmd!(conn, "RENAME old renamed");
        cmd!(conn, "LOCK.RLOCK renamed a 600000");
        cmd!(conn, "COPY read copy");
        cmd!(conn, "LOCK.RELEASE copy reader:1");
        cmd!(conn, "LOCK.ACQUIRE deleted a 600000");
        cmd!(conn, "DEL deleted");
        let (key, owner) = (&b"odd\0\r\n\xff"[..], vec![0xff_u8; 255]);
        cmd!(conn, "LOCK.ACQUIRE", key, owner, 600_000);
        cmd!(conn, "SET unrelated value");
    }
}
