//! LOCK.MACQUIRE: several locks at once, all or none.

mod asking;
mod callbacks;
mod cycles;
mod ends;
mod gates;
mod keyspace;
mod limits;
mod lost;
mod order;
mod whole;

use mortise_harness::redis::Cmd;
use mortise_harness::{Conn, Server, array, cmd, int, lock_info, queued};

/// Keys in one slot.
pub(crate) const A: &str = "{k}a";
pub(crate) const B: &str = "{k}b";
pub(crate) const C: &str = "{k}c";

/// LOCK.MACQUIRE of these keys, for a minute, with further arguments.
pub(crate) fn several(owner: &str, keys: &[&str], more: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    command.arg("LOCK.MACQUIRE").arg(owner).arg(60_000);
    command.arg(keys.len()).arg(keys).arg(more);
    command
}

/// A request for these keys that has to wait, by mail in the box `{k}box`.
#[track_caller]
pub(crate) fn by_mail(conn: &mut Conn, owner: &str, keys: &[&str]) -> i64 {
    queued(&conn.run(&several(owner, keys, &["WAIT", "0", "MAIL", "{k}box"])))
}

/// `owner` releases what it holds at these keys.
#[track_caller]
pub(crate) fn release(conn: &mut Conn, owner: &str, keys: &[&str]) {
    for key in keys {
        let left = int(&cmd!(conn, "LOCK.RELEASE {key} {owner}"));
        assert_eq!(left, 0, "{key} of {owner}");
    }
}

/// Checks that nobody waits at any of the keys, blocked or by mail, and that nothing is left to do.
#[track_caller]
pub(crate) fn nobody_waits(server: &Server, keys: &[&str]) {
    let mut conn = server.connect();
    for key in keys {
        let info = lock_info(&mut conn, key);
        assert!(info.is_none_or(|info| info.queue.is_empty()), "at {key}");
    }
    assert!(array(&cmd!(conn, "LOCK.TOP")).is_empty());
    for gauge in [
        "waiters",
        "waiters_by_mail",
        "blocked_clients",
        "marked",
        "held_back",
    ] {
        server.await_gauge(gauge, 0);
    }
}

/// Checks that all keys are free, and that nobody waits for them.
#[track_caller]
pub(crate) fn all_free(conn: &mut Conn, keys: &[&str]) {
    for key in keys {
        let info = lock_info(conn, key);
        assert!(info.is_none(), "{key}: {info:?}");
    }
}
