//! Waiters in LOCK.INFO, LOCK.TOP, and the gauges and totals of INFO.

use mortise_harness::redis::Value;
use mortise_harness::{
    Conn, Server, array, as_map, cmd, command, eventually, granted, int, is_nil, lock_info, send,
    text, try_cmd, waiter,
};

#[test]
fn a_queue_entry_shows_who_waits_for_what_and_how_long() {
    let server = Server::start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
    let w = waiter!(server, "LOCK.ACQUIRE", "key", "w", 30_000, "WAIT", 50_000);
    let r = waiter!(server, "LOCK.RLOCK", "key", "r", 20_000, "WAIT", 0);
    for conn in [&mut a, &mut server.connect_resp3()] {
        let info = lock_info(conn, "key").unwrap();
        assert_eq!(
            (info.mode.as_str(), info.holders, info.waiters),
            ("write", 1, 2)
        );
        let [first, second] = &info.queue[..] else {
            panic!("{info:?}");
        };
        assert_eq!(
            (&first.owner[..], first.mode.as_str()),
            (&b"w"[..], "write")
        );
        assert_eq!((first.lease, first.client), (30_000, w.client_id()));
        assert!((0..50_000).contains(&first.waited), "{first:?}");
        assert_eq!(first.waited + first.left, 50_000);
        assert_eq!(
            (&second.owner[..], second.mode.as_str()),
            (&b"r"[..], "read")
        );
        assert_eq!((second.lease, second.client), (20_000, r.client_id()));
        assert_eq!(second.left, -1);
    }
}

#[test]
fn count_limits_the_entries_shown_and_not_the_length_of_the_queue() {
    let server = Server::start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
    let owners: Vec<String> = (0..120).map(|n| format!("w{n}")).collect();
    let asking = owners
        .iter()
        .map(|owner| command!("LOCK.ACQUIRE", "key", owner, 60_000, "WAIT", 0));
    let _waiting = server.waiters(asking);
    for (count, shown) in [(None, 100), (Some(3), 3), (Some(500), 120)] {
        let reply = match count {
            None => cmd!(a, "LOCK.INFO", "key"),
            Some(count) => cmd!(a, "LOCK.INFO", "key", "COUNT", count),
        };
        let info = as_map(&reply);
        assert_eq!(int(&info["waiters"]), 120);
        let queue = array(&info["queue"]);
        assert_eq!(queue.len(), shown);
        let named: Vec<String> = queue
            .iter()
            .map(|entry| text(&as_map(entry)["owner"]))
            .collect();
        assert_eq!(named, owners[..shown]);
    }
}

#[test]
fn the_info_of_an_owner_that_only_waits_is_null() {
    let server = Server::start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
    let _b = waiter!(server, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
    assert!(is_nil(&cmd!(a, "LOCK.INFO", "key", "OWNER", "b")));
}

#[test]
fn the_mode_of_a_lock_held_by_readers_is_read_whatever_waits() {
    let server = Server::start();
    let mut a = server.connect();
    cmd!(a, "LOCK.RLOCK", "key", "a", 60_000);
    let _w = waiter!(server, "LOCK.WLOCK", "key", "w", 60_000, "WAIT", 0);
    let _u = waiter!(server, "LOCK.RLOCK", "key", "r", 60_000, "WAIT", 0);
    let info = lock_info(&mut a, "key").unwrap();
    assert_eq!(
        (info.mode.as_str(), info.holders, info.waiters),
        ("read", 1, 2)
    );
}

/// The locks of LOCK.TOP: key, database, mode, holders, waiters.
#[track_caller]
fn top(conn: &mut Conn, args: &[&str]) -> Vec<(String, i64, String, i64, i64)> {
    let mut words = vec!["LOCK.TOP"];
    words.extend(args);
    let reply = conn.cmd(&words);
    let entries = array(&reply).iter().map(|entry| {
        let mut entry = as_map(entry);
        let oldest = int(&entry.remove("oldest").expect("oldest"));
        assert!((0..60_000).contains(&oldest), "{oldest}");
        let row = (
            text(&entry.remove("key").expect("key")),
            int(&entry.remove("db").expect("db")),
            text(&entry.remove("mode").expect("mode")),
            int(&entry.remove("holders").expect("holders")),
            int(&entry.remove("waiters").expect("waiters")),
        );
        assert!(
            entry.is_empty(),
            "more than the contract's fields: {entry:?}"
        );
        row
    });
    entries.collect()
}

fn row(
    key: &str,
    db: i64,
    mode: &str,
    holders: i64,
    waiters: i64,
) -> (String, i64, String, i64, i64) {
    (key.to_owned(), db, mode.to_owned(), holders, waiters)
}

#[test]
fn top_shows_the_locks_with_the_most_waiters_of_all_databases() {
    let server = Server::start_alone();
    let mut conn = server.connect();
    assert_eq!(top(&mut conn, &[]), []);
    cmd!(conn, "SELECT", 3);
    cmd!(conn, "LOCK.ACQUIRE", "many", "a", 60_000);
    cmd!(conn, "SELECT", 0);
    cmd!(conn, "LOCK.RLOCK", "some", "a", 60_000);
    cmd!(conn, "LOCK.RLOCK", "some", "b", 60_000);
    cmd!(conn, "LOCK.ACQUIRE", "few", "a", 60_000);
    cmd!(conn, "LOCK.ACQUIRE", "none", "a", 60_000);
    let mut waiting = Vec::new();
    for (db, key, waiters) in [(0, "few", 1), (3, "many", 3), (0, "some", 2)] {
        for n in 0..waiters {
            let mut w = server.connect();
            cmd!(w, "SELECT", db);
            send!(w, "LOCK.WLOCK", key, format!("w{n}"), 60_000, "WAIT", 0);
            server.await_blocked(&w);
            waiting.push(w);
        }
    }
    let all = [
        row("many", 3, "write", 1, 3),
        row("some", 0, "read", 2, 2),
        row("few", 0, "write", 1, 1),
    ];
    assert_eq!(top(&mut conn, &[]), all);
    assert_eq!(top(&mut conn, &["COUNT", "2"]), all[..2]);
    assert_eq!(top(&mut server.connect_resp3(), &["count", "1"]), all[..1]);
    // The connection stays in its own database.
    assert_eq!(lock_info(&mut conn, "few").unwrap().waiters, 1);
    drop(waiting);
    eventually("nobody waits", || top(&mut conn, &[]).is_empty());
}

#[test]
fn top_shows_ten_locks_by_default() {
    let server = Server::start();
    let mut conn = server.connect();
    let names: Vec<String> = (0..15).map(|n| format!("k{n}")).collect();
    for name in &names {
        cmd!(conn, "LOCK.ACQUIRE", name, "a", 60_000);
    }
    let asking = names
        .iter()
        .map(|name| command!("LOCK.ACQUIRE", name, "b", 60_000, "WAIT", 0));
    let _waiting = server.waiters(asking);
    assert_eq!(top(&mut conn, &[]).len(), 10);
    assert_eq!(top(&mut conn, &["COUNT", "100"]).len(), 15);
    for bad in [
        &["COUNT", "0"][..],
        &["COUNT"],
        &["COUNT", "x"],
        &["SIDEWAYS"],
        &["COUNT", "1", "COUNT", "1"],
    ] {
        let mut words = vec!["LOCK.TOP"];
        words.extend(bad);
        assert!(
            conn.try_cmd(&words).unwrap_err().starts_with("ERR "),
            "{bad:?}"
        );
    }
}

#[test]
fn the_gauges_of_info_follow_every_change() {
    let server = Server::start();
    let mut a = server.connect();
    let gauges =
        || ["locks", "holders", "waiters", "blocked_clients"].map(|name| server.gauge(name));
    assert_eq!(gauges(), [0, 0, 0, 0]);
    cmd!(a, "LOCK.RLOCK", "k1", "a", 60_000);
    cmd!(a, "LOCK.RLOCK", "k1", "b", 60_000);
    cmd!(a, "LOCK.ACQUIRE", "k2", "a", 60_000);
    assert_eq!(gauges(), [2, 3, 0, 0]);
    let mut w1 = waiter!(server, "LOCK.WLOCK", "k1", "w", 60_000, "WAIT", 0);
    let mut w2 = waiter!(server, "LOCK.RLOCK", "k2", "w", 60_000, "WAIT", 0);
    assert_eq!(gauges(), [2, 3, 2, 2]);
    cmd!(a, "LOCK.RELEASE", "k1", "a");
    assert_eq!(gauges(), [2, 2, 2, 2]);
    cmd!(a, "LOCK.RELEASE", "k1", "b");
    granted(&mut w1);
    assert_eq!(gauges(), [2, 2, 1, 1]);
    cmd!(a, "FLUSHALL");
    granted(&mut w2);
    assert_eq!(gauges(), [1, 1, 0, 0]);
    cmd!(a, "LOCK.RELEASE", "k2", "w");
    assert_eq!(gauges(), [0, 0, 0, 0]);
}

#[test]
fn the_totals_of_info_count_every_event() {
    let server = Server::start();
    let mut a = server.connect();
    let total = |name: &str| server.gauge(&format!("total_{name}"));
    let token = int(&cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000));
    assert_eq!(
        (
            total("grants"),
            total("handoffs"),
            server.gauge("last_token")
        ),
        (1, 0, token)
    );
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
    assert_eq!((total("grants"), total("reentries")), (1, 1));
    assert!(is_nil(&cmd!(a, "LOCK.ACQUIRE", "key", "b", 60_000)));
    assert_eq!(total("denied"), 1);
    cmd!(a, "LOCK.RENEW", "key", "a", 60_000);
    assert_eq!(total("renewals"), 1);
    let mut b = waiter!(server, "LOCK.ACQUIRE", "key", "b", 100, "WAIT", 0);
    let mut c = waiter!(server, "LOCK.ACQUIRE", "key", "c", 60_000, "WAIT", 1_000);
    assert!(is_nil(&c.recv()));
    assert_eq!((total("timeouts"), total("denied")), (1, 1));
    cmd!(a, "LOCK.RELEASE", "key", "a", "ALL");
    let token = granted(&mut b);
    assert_eq!(
        (total("grants"), total("handoffs"), total("releases")),
        (2, 1, 1)
    );
    assert_eq!(server.gauge("last_token"), token);
    eventually("b's lease is over", || total("expiries") == 1);
    cmd!(a, "LOCK.ACQUIRE", "k1", "a", 60_000);
    cmd!(a, "LOCK.ACQUIRE", "k2", "b", 60_000);
    let _a = waiter!(server, "LOCK.ACQUIRE", "k2", "a", 60_000, "WAIT", 0);
    try_cmd!(a, "LOCK.ACQUIRE", "k1", "b", 60_000, "WAIT", 0).unwrap_err();
    assert_eq!(
        (total("deadlocks"), total("denied"), total("timeouts")),
        (1, 1, 1)
    );
}

#[test]
fn subscribers_of_keyspace_events_are_notified_of_a_handoff() {
    let server = Server::builder()
        .config("notify-keyspace-events", "Kd")
        .start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
    let mut b = waiter!(server, "LOCK.ACQUIRE", "key", "b", 100, "WAIT", 0);
    let mut listener = server.connect();
    cmd!(listener, "SUBSCRIBE", "__keyspace@0__:key");
    cmd!(a, "LOCK.RELEASE", "key", "a");
    granted(&mut b);
    let mut events: Vec<String> = (0..3)
        .map(|_| text(array(&listener.recv()).last().unwrap_or(&Value::Nil)))
        .collect();
    assert_eq!(events.pop().unwrap(), "lock.expire");
    events.sort();
    assert_eq!(events, ["lock.acquire", "lock.release"]);
}
