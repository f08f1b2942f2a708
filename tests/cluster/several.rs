//! Cluster: LOCK.MACQUIRE takes keys of one slot, but not while that slot migrates key by key.

use std::time::Duration;

use mortise_harness::{
    Cluster, Resharding, Server, asking, cmd, command, eventually, granted, hold_of, int,
    lock_info, mail, migrate, node_id, queued, try_cmd,
};

const A: &str = "{k}a";
const B: &str = "{k}b";

#[track_caller]
fn refused<T: std::fmt::Debug>(reply: Result<T, String>, start: &str) {
    let error = reply.unwrap_err();
    assert!(error.starts_with(start), "{error}");
}

#[test]
fn keys_of_two_slots_are_refused() {
    let cluster = Cluster::start(1, Server::builder);
    let mut conn = cluster.primaries[0].connect();
    for more in [&[][..], &["WAIT", "0"]] {
        let ask = command!("LOCK.MACQUIRE", "m", 1_000, 2, A, "elsewhere", more);
        refused(conn.try_run(&ask), "CROSSSLOT ");
        let inside = command!("LOCK.GUARD {A} x 1 LOCK.MACQUIRE m 1000 1 elsewhere");
        refused(conn.try_run(&inside), "CROSSSLOT ");
    }
    assert_eq!(int(&cmd!(conn, "DBSIZE")), 0);
}

#[test]
fn a_node_that_does_not_serve_the_slot_redirects() {
    let cluster = Resharding::of(A);
    let elsewhere = cluster.to();
    let mut conn = elsewhere.connect();
    for more in [&[][..], &["WAIT", "0"]] {
        let ask = command!("LOCK.MACQUIRE", "m", 1_000, 2, A, B, more);
        refused(conn.try_run(&ask), "MOVED ");
    }
    cmd!(conn, "MULTI");
    let queued = try_cmd!(conn, "LOCK.MACQUIRE m 1000 2 {A} {B}");
    refused(queued, "MOVED ");
    assert_eq!(int(&cmd!(elsewhere.connect(), "DBSIZE")), 0);
}

#[test]
fn while_the_slot_migrates_new_and_waiting_requests_get_tryagain() {
    let moving = Resharding::of(A);
    let (from, to, cluster) = (moving.from(), moving.to(), &moving.cluster);
    let home = cluster.home_of(A);
    // LOCK.MAIL is routed by the slot of its box, so the box is in another slot of the same node.
    let boxes = (0..).map(|n| format!("box{n}"));
    let mut boxes = boxes.filter(|name| cluster.home_of(name) == home);
    let mailbox = boxes.next().expect("every node has a box");
    let mut conn = from.connect();
    let mut there = to.connect();
    let ask = |owner: &str| command!("LOCK.MACQUIRE", owner, 60_000, 2, A, B, "WAIT", 0);
    let token = int(&cmd!(conn, "LOCK.MACQUIRE", "h", 60_000, 2, A, B));
    let mut blocked = from.waiter(&ask("m"));
    let by_mail = command!("LOCK.MACQUIRE n 60000 2 {B} {A} WAIT 0 MAIL {mailbox}");
    queued(&conn.run(&by_mail));
    moving.begin();
    refused(blocked.try_recv(), "TRYAGAIN ");
    let letters = mail!(conn, &mailbox, "WAIT", 2_000);
    refused::<()>(Err(letters.only().error.clone().unwrap()), "TRYAGAIN ");
    eventually("nobody waits", || from.gauge("waiters") == 0);
    refused(conn.try_run(&ask("m")), "TRYAGAIN ");
    refused(asking(&mut there, &ask("m")), "TRYAGAIN ");
    // Key by key: each hold moves on its own.
    moving.migrate();
    refused(conn.try_run(&ask("m")), "TRYAGAIN ");
    refused(asking(&mut there, &ask("m")), "TRYAGAIN ");
    assert!(lock_info(&mut conn, B).is_some());
    migrate(B, from, to);
    refused(conn.try_run(&ask("m")), "ASK ");
    refused(asking(&mut there, &ask("m")), "TRYAGAIN ");
    moving.end();
    for key in [A, B] {
        assert_eq!(hold_of(&mut there, key, "h").unwrap().token, token);
    }
    refused(conn.try_run(&ask("m")), "MOVED ");
    // The module asks the server for its slots every few milliseconds at most.
    let at_once = command!("LOCK.MACQUIRE", "m", 60_000, 2, A, B);
    eventually("the slot has come", || there.try_run(&at_once).map(|_| ()));
    let mut waiter = to.waiter(&ask("m"));
    for key in [A, B] {
        cmd!(there, "LOCK.RELEASE", key, "h");
    }
    granted(&mut waiter);
    assert_eq!((from.gauge("locks"), from.gauge("waiters")), (0, 0));
}

#[test]
fn a_slot_that_leaves_at_once_removes_the_request_from_every_queue() {
    let moving = Resharding::of(A);
    let (from, to, slot) = (moving.from(), moving.to(), moving.slot);
    let mut conn = from.connect();
    cmd!(conn, "LOCK.ACQUIRE", A, "h", 60_000);
    let ask = command!("LOCK.MACQUIRE", "m", 60_000, 2, A, B, "WAIT", 0);
    let mut blocked = from.waiter(&ask);
    // Without SETSLOT MIGRATING first, the keys leave together with the slot.
    cmd!(conn, "DEL", B);
    for server in [to, from] {
        let mut conn = server.connect();
        let node = node_id(to);
        let _ = try_cmd!(conn, "CLUSTER SETSLOT {slot} NODE {node}");
    }
    let mut reply = blocked.recv_within(Duration::from_secs(1));
    if reply.is_none() {
        // A server keeps a slot as long as it has keys in it, unless the other one says meanwhile that the slot is its own. Then the release
        // lets the request in, if the slot does not leave before.
        let is_released = try_cmd!(conn, "LOCK.RELEASE", A, "h").is_ok();
        let answer = blocked.try_recv();
        if is_released && answer.is_ok() {
            return;
        }
        reply = Some(answer);
    }
    refused(reply.unwrap(), "UNBLOCKED ");
    eventually("nobody waits", || from.gauge("waiters") == 0);
}
