//! The locks in the files, and the commands that made them.

use mortise_harness::{Conn, Server, cmd, granted, int, waiter};

/// The wall clock of the server that wrote the files at its start: the first second of 2026.
pub(crate) const MADE_AT: i64 = 1_767_225_600_000_000;
/// The last token granted, half an hour ahead. Its lock was released, so only the token clock has it.
pub(crate) const LAST: i64 = MADE_AT + 1_800_000_000;
pub(crate) const HOUR: i64 = 3_600_000;
pub(crate) const MINUTE: i64 = 60_000;

/// A lock's token: two minutes ahead of the clock, so that `FENCE` sets it exactly.
pub(crate) const fn token(number: i64) -> i64 {
    MADE_AT + 120_000_000 + number
}

pub(crate) type Name = (u32, &'static [u8], &'static str);
/// Owner, write count, read count, number of the token, lease in milliseconds.
pub(crate) type Stake = (&'static [u8], i64, i64, i64, i64);

pub(crate) const MOST: i64 = i32::MAX as i64;

/// All locks in the files.
pub(crate) const LOCKS: [(Name, &[Stake]); 11] = [
    ((0, b"once", "write"), &[(b"a", 1, 0, 1, HOUR)]),
    ((0, b"counted", "write"), &[(b"a", 7, 0, 2, 2 * HOUR)]),
    ((0, b"both", "write"), &[(b"a", 2, 3, 3, 3 * HOUR)]),
    ((0, b"most", "write"), &[(b"a", MOST, MOST, 4, 4 * HOUR)]),
    (
        (0, b"read", "read"),
        &[
            (b"r1", 0, 1, 5, HOUR),
            (b"r2", 0, 2, 6, 2 * HOUR),
            (b"r300", 0, 300, 7, 20 * HOUR),
        ],
    ),
    ((0, b"upgraded", "write"), &[(b"a", 1, 1, 10, HOUR)]),
    ((0, b"downgraded", "read"), &[(b"a", 0, 1, 11, HOUR)]),
    (
        (0, b"fenced and renewed", "read"),
        &[(b"a", 0, 1, 13, 23 * HOUR)],
    ),
    ((0, b"handed on", "write"), &[(b"b", 1, 0, 15, HOUR)]),
    (
        (9, b"odd\0\r\n\xff", "write"),
        &[(&[0xff; 255], 1, 0, 16, HOUR)],
    ),
    // It ends after ten minutes, within the tolerance.
    ((9, b"short", "write"), &[(b"a", 1, 0, 17, MINUTE)]),
];

/// Key and owner of the revoked holds.
pub(crate) const REVOKED: [(&[u8], &[u8]); 3] =
    [(b"counted", b"a"), (b"read", b"r2"), (b"handed on", b"b")];

/// Makes the locks; runs `halfway` between the two halves.
pub(crate) fn make_history(server: &Server, halfway: impl FnOnce()) {
    let mut conn = server.connect();
    let hour = HOUR;
    cmd!(conn, "LOCK.ACQUIRE", "once", "a", hour, "FENCE", token(1));
    let take = |conn: &mut Conn, mode: &str, key: &str, owner: &str, holds, number, lease| {
        let taken = cmd!(
            conn,
            mode,
            key,
            owner,
            lease,
            "HOLDS",
            holds,
            "FENCE",
            token(number)
        );
        assert_eq!(int(&taken), token(number), "{key}");
    };
    take(&mut conn, "LOCK.WLOCK", "counted", "a", 7, 2, 2 * hour);
    take(&mut conn, "LOCK.WLOCK", "both", "a", 2, 3, 3 * hour);
    cmd!(conn, "LOCK.RLOCK", "both", "a", 1, "HOLDS", 3);
    take(&mut conn, "LOCK.WLOCK", "most", "a", MOST, 4, 4 * hour);
    cmd!(conn, "LOCK.RLOCK", "most", "a", 1, "HOLDS", MOST);
    take(&mut conn, "LOCK.RLOCK", "read", "r1", 1, 5, hour);
    take(&mut conn, "LOCK.RLOCK", "read", "r2", 2, 6, 2 * hour);
    cmd!(conn, "LOCK.REVOKE", "counted", "a");
    cmd!(conn, "LOCK.REVOKE", "read", "r2");
    halfway();
    take(&mut conn, "LOCK.RLOCK", "read", "r300", 300, 7, 20 * hour);
    take(&mut conn, "LOCK.RLOCK", "read", "gone", 1, 8, hour);
    cmd!(conn, "LOCK.RELEASE", "read", "gone");
    take(&mut conn, "LOCK.RLOCK", "upgraded", "a", 1, 9, hour);
    take(&mut conn, "LOCK.WLOCK", "upgraded", "a", 1, 10, hour);
    take(&mut conn, "LOCK.WLOCK", "downgraded", "a", 1, 11, hour);
    cmd!(conn, "LOCK.RLOCK", "downgraded", "a", 1);
    cmd!(conn, "LOCK.RELEASE", "downgraded", "a", "WRITE");
    take(
        &mut conn,
        "LOCK.RLOCK",
        "fenced and renewed",
        "a",
        1,
        12,
        hour,
    );
    cmd!(conn, "LOCK.FENCE", "fenced and renewed", "a", token(13));
    cmd!(conn, "LOCK.RENEW", "fenced and renewed", "a", 23 * hour);
    take(&mut conn, "LOCK.WLOCK", "handed on", "a", 1, 14, hour);
    let mut b = waiter!(
        server,
        "LOCK.ACQUIRE",
        "handed on",
        "b",
        hour,
        "WAIT",
        0,
        "FENCE",
        token(15)
    );
    cmd!(conn, "LOCK.RELEASE", "handed on", "a");
    assert_eq!(granted(&mut b), token(15));
    cmd!(conn, "LOCK.REVOKE", "handed on", "b");
    cmd!(conn, "SELECT", 9);
    let (odd, owner) = (&b"odd\0\r\n\xff"[..], vec![0xff_u8; 255]);
    cmd!(conn, "LOCK.ACQUIRE", odd, owner, hour, "FENCE", token(16));
    let fence = token(17);
    cmd!(conn, "LOCK.ACQUIRE short a {MINUTE} FENCE {fence}");
    cmd!(conn, "SET", "unrelated", "value");
    cmd!(conn, "LOCK.ACQUIRE", "released", "a", 1_000, "FENCE", LAST);
    cmd!(conn, "LOCK.RELEASE", "released", "a");
}
