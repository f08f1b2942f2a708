//! Waiters in LOCK.INFO, LOCK.TOP, and the gauges and totals of INFO.

use mortise_harness::redis::Value;
use mortise_harness::{
    Conn, LockInfo, Server, array, as_map, cmd, command, eventually, granted, int, is_nil,
    lock_info, send, text, try_cmd, waiter,
};

#[test]
fn a_queue_entry_shows_who_waits_for_what_and_how_long() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let w = waiter!(server, "LOCK.ACQUIRE key w 30000 WAIT 50000");
    let r = waiter!(server, "LOCK.RLOCK key r 20000 WAIT 0");
    for conn in [&mut a, &mut server.connect_resp3()] {
        let info = lock_info(conn, "key").unwrap();
        assert_eq!((&*info.mode, info.holders, info.waiters), ("write", 1, 2));
        let (first, second) = (&info.queue[0], &info.queue[1]);
        assert_eq!((&first.owner[..], &*first.mode), (&b"w"[..], "write"));
        assert_eq!((first.lease, first.client), (30_000, w.client_id()));
        assert!((0..50_000).contains(&first.waited), "{first:?}");
        assert_eq!(first.waited + first.left, 50_000);
        assert_eq!((&second.owner[..], &*second.mode), (&b"r"[..], "read"));
        assert_eq!((second.lease, second.client), (20_000, r.client_id()));
        assert_eq!(second.left, -1);
    }
}

#[test]
fn count_limits_the_entries_shown_and_not_the_length_of_the_queue() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let owners: Vec<String> = (0..120).map(|n| format!("w{n}")).collect();
    let asking = owners
        .iter()
        .map(|owner| command!("LOCK.ACQUIRE key {owner} 60000 WAIT 0"));
    let _waiting = server.waiters(asking);
    for (count, shown) in [("", 100), ("COUNT 3", 3), ("COUNT 500", 120)] {
        let info = LockInfo::read(&cmd!(a, "LOCK.INFO key {count}"));
        assert_eq!(info.waiters, 120);
        let named: Vec<_> = info.queue.into_iter().map(|entry| entry.owner).collect();
        let expected = owners[..shown].iter().map(|owner| owner.as_bytes());
        assert!(named.iter().eq(expected), "{named:?}");
    }
}

#[test]
fn the_info_of_an_owner_that_only_waits_is_null() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let _b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    assert!(is_nil(&cmd!(a, "LOCK.INFO key OWNER b")));
}

/// The locks that a LOCK.TOP shows: key, database, mode, holders, waiters.
#[track_caller]
fn top(conn: &mut Conn, options: &str) -> Vec<String> {
    let reply = cmd!(conn, "LOCK.TOP {options}");
    let entries = array(&reply).iter().map(|entry| {
        let entry = as_map(entry);
        assert_eq!(entry.len(), 6, "the contract's fields: {entry:?}");
        let oldest = int(&entry["oldest"]);
        assert!((0..60_000).contains(&oldest), "{oldest}");
        let [key, mode] = ["key", "mode"].map(|field| text(&entry[field]));
        let [db, holders, waiters] = ["db", "holders", "waiters"].map(|field| int(&entry[field]));
        format!("{key} {db} {mode} {holders} {waiters}")
    });
    entries.collect()
}

#[test]
fn top_shows_the_locks_with_the_most_waiters_of_all_databases() {
    let (server, mut conn) = Server::builder().alone().start_connected();
    assert!(top(&mut conn, "").is_empty());
    cmd!(conn, "SELECT 3");
    cmd!(conn, "LOCK.ACQUIRE many a 60000");
    cmd!(conn, "SELECT 0");
    cmd!(conn, "LOCK.RLOCK some a 60000");
    cmd!(conn, "LOCK.RLOCK some b 60000");
    cmd!(conn, "LOCK.ACQUIRE few a 60000");
    cmd!(conn, "LOCK.ACQUIRE none a 60000");
    let mut waiting = Vec::new();
    for (db, key, waiters) in [(0, "few", 1), (3, "many", 3), (0, "some", 2)] {
        for n in 0..waiters {
            let mut w = server.connect();
            cmd!(w, "SELECT {db}");
            send!(w, "LOCK.WLOCK {key} w{n} 60000 WAIT 0");
            server.await_blocked(&w);
            waiting.push(w);
        }
    }
    let all = ["many 3 write 1 3", "some 0 read 2 2", "few 0 write 1 1"];
    assert_eq!(top(&mut conn, ""), all);
    assert_eq!(top(&mut conn, "COUNT 2"), all[..2]);
    assert_eq!(top(&mut server.connect_resp3(), "count 1"), all[..1]);
    // The connection stays in its own database.
    assert_eq!(lock_info(&mut conn, "few").unwrap().waiters, 1);
    drop(waiting);
    eventually("nobody waits", || top(&mut conn, "").is_empty());
}

#[test]
fn top_shows_ten_locks_by_default() {
    let (server, mut conn) = Server::start_connected();
    let names: Vec<String> = (0..15).map(|n| format!("k{n}")).collect();
    for name in &names {
        cmd!(conn, "LOCK.ACQUIRE {name} a 60000");
    }
    let asking = names
        .iter()
        .map(|name| command!("LOCK.ACQUIRE {name} b 60000 WAIT 0"));
    let _waiting = server.waiters(asking);
    assert_eq!(top(&mut conn, "").len(), 10);
    assert_eq!(top(&mut conn, "COUNT 100").len(), 15);
}

#[test]
fn the_gauges_of_info_follow_every_change() {
    let (server, mut a) = Server::start_connected();
    let gauges =
        || ["locks", "holders", "waiters", "blocked_clients"].map(|name| server.gauge(name));
    assert_eq!(gauges(), [0, 0, 0, 0]);
    cmd!(a, "LOCK.RLOCK k1 a 60000");
    cmd!(a, "LOCK.RLOCK k1 b 60000");
    cmd!(a, "LOCK.ACQUIRE k2 a 60000");
    assert_eq!(gauges(), [2, 3, 0, 0]);
    let mut w1 = waiter!(server, "LOCK.WLOCK k1 w 60000 WAIT 0");
    let mut w2 = waiter!(server, "LOCK.RLOCK k2 w 60000 WAIT 0");
    assert_eq!(gauges(), [2, 3, 2, 2]);
    cmd!(a, "LOCK.RELEASE k1 a");
    assert_eq!(gauges(), [2, 2, 2, 2]);
    cmd!(a, "LOCK.RELEASE k1 b");
    granted(&mut w1);
    assert_eq!(gauges(), [2, 2, 1, 1]);
    cmd!(a, "FLUSHALL");
    granted(&mut w2);
    assert_eq!(gauges(), [1, 1, 0, 0]);
    cmd!(a, "LOCK.RELEASE k2 w");
    assert_eq!(gauges(), [0, 0, 0, 0]);
}

#[test]
fn the_totals_of_info_count_every_event() {
    let (server, mut a) = Server::start_connected();
    let total = |name: &str| server.gauge(&format!("total_{name}"));
    let token = int(&cmd!(a, "LOCK.ACQUIRE key a 60000"));
    assert_eq!((total("grants"), total("handoffs")), (1, 0));
    assert_eq!(server.gauge("last_token"), token);
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    assert_eq!((total("grants"), total("reentries")), (1, 1));
    assert!(is_nil(&cmd!(a, "LOCK.ACQUIRE key b 60000")));
    assert_eq!(total("denied"), 1);
    cmd!(a, "LOCK.RENEW key a 60000");
    assert_eq!(total("renewals"), 1);
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 100 WAIT 0");
    let mut c = waiter!(server, "LOCK.ACQUIRE key c 60000 WAIT 1000");
    assert!(is_nil(&c.recv()));
    assert_eq!((total("timeouts"), total("denied")), (1, 1));
    cmd!(a, "LOCK.RELEASE key a ALL");
    let token = granted(&mut b);
    let totals = |names: [&str; 3]| names.map(total);
    assert_eq!(totals(["grants", "handoffs", "releases"]), [2, 1, 1]);
    assert_eq!(server.gauge("last_token"), token);
    eventually("b's lease is over", || total("expiries") == 1);
    cmd!(a, "LOCK.ACQUIRE k1 a 60000");
    cmd!(a, "LOCK.ACQUIRE k2 b 60000");
    let _a = waiter!(server, "LOCK.ACQUIRE k2 a 60000 WAIT 0");
    try_cmd!(a, "LOCK.ACQUIRE k1 b 60000 WAIT 0").unwrap_err();
    assert_eq!(totals(["deadlocks", "denied", "timeouts"]), [1, 1, 1]);
}

#[test]
fn subscribers_of_keyspace_events_are_notified_of_a_handoff() {
    let (server, mut a) = Server::configured("notify-keyspace-events Kd");
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 100 WAIT 0");
    let mut listener = server.connect();
    cmd!(listener, "SUBSCRIBE __keyspace@0__:key");
    cmd!(a, "LOCK.RELEASE key a");
    granted(&mut b);
    let mut events: Vec<String> = (0..3)
        .map(|_| text(array(&listener.recv()).last().unwrap_or(&Value::Nil)))
        .collect();
    assert_eq!(events.pop().unwrap(), "lock.expire");
    events.sort();
    assert_eq!(events, ["lock.acquire", "lock.release"]);
}
