//! Many boxes, and many letters of one owner.

use mortise_harness::{
    Conn, Server, cmd, command, eventually_within, int, mail, request, send, text,
};

use crate::{MANY, PATIENCE, alone, assert_never_long, run_many, server};

fn make_boxes(conn: &mut Conn) {
    let calls = (0..MANY).map(|n| command!("LOCK.MAIL", format!("box:{n}")));
    run_many(conn, calls, |_| {});
}

#[track_caller]
fn all_go(server: &Server) {
    eventually_within(PATIENCE, "the boxes are closed", || {
        let boxes = server.gauge("boxes");
        if boxes == 0 { Ok(()) } else { Err(boxes) }
    });
}

fn used_memory(server: &Server) -> i64 {
    server.info("memory")["used_memory"].parse().unwrap()
}

#[test]
fn a_primary_with_many_boxes_can_become_a_replica() {
    let _turn = alone();
    let server = server().start();
    let mut conn = server.connect();
    make_boxes(&mut conn);
    assert_eq!(server.gauge("boxes"), MANY as i64);
    cmd!(conn, "REPLICAOF", "127.0.0.1", 1);
    all_go(&server);
    cmd!(conn, "REPLICAOF", "NO", "ONE");
    mail!(conn, "box:0");
    assert_eq!(server.gauge("boxes"), 1);
    assert_never_long(&server);
}

#[test]
fn a_primary_that_becomes_a_replica_answers_every_waiting_mail_call() {
    const READERS: usize = 3_000;
    let _turn = alone();
    let server = server().start();
    let mut conn = server.connect();
    let mut readers: Vec<Conn> = (0..READERS).map(|_| server.connect()).collect();
    for (n, reader) in readers.iter_mut().enumerate() {
        send!(reader, "LOCK.MAIL", format!("box:{n}"), "WAIT", 0);
    }
    eventually_within(PATIENCE, "all wait", || {
        let waiting = server.gauge("blocked_clients");
        if waiting == READERS as i64 {
            Ok(())
        } else {
            Err(waiting)
        }
    });
    cmd!(conn, "REPLICAOF", "127.0.0.1", 1);
    for reader in &mut readers {
        let error = reader.try_recv().expect_err("a replica has no boxes");
        assert!(error.starts_with("UNBLOCKED "), "{error}");
    }
    all_go(&server);
    // The server gives a client up some time after its reply.
    eventually_within(PATIENCE, "nobody is blocked", || {
        server.gauge("blocked_clients") == 0
    });
    assert_never_long(&server);
}

#[test]
fn many_abandoned_boxes_are_closed_and_free_their_memory() {
    let _turn = alone();
    let server = server().start();
    let mut conn = server.connect();
    let before = used_memory(&server);
    make_boxes(&mut conn);
    let taken = used_memory(&server) - before;
    cmd!(conn, "CONFIG", "SET", "lock.mail-timeout", 100);
    all_go(&server);
    assert_never_long(&server);
    eventually_within(PATIENCE, "the memory is freed", || {
        let kept = used_memory(&server) - before;
        if kept < taken / 4 {
            Ok(())
        } else {
            Err((kept, taken))
        }
    });
}

/// Requests each of the first 100 keys, which are held, by mail. Returns the server's processor time for it.
fn cost_of_asking(conn: &mut Conn, owner: &str) -> f64 {
    cmd!(conn, "CONFIG", "RESETSTAT");
    let requests = (0..100).map(|n| {
        let key = format!("key:{n}");
        request!("other", 0, "LOCK.ACQUIRE", key, owner, 600_000)
    });
    run_many(conn, requests, |_| {});
    let stats = text(&cmd!(conn, "INFO", "commandstats"));
    let line = stats
        .lines()
        .find(|line| line.starts_with("cmdstat_LOCK.ACQUIRE"));
    let (_, cost) = line.unwrap().split_once("usec_per_call=").unwrap();
    cost.split(',').next().unwrap().parse().unwrap()
}

#[test]
fn a_request_of_an_owner_with_many_letters_is_as_fast_as_any() {
    let _turn = alone();
    let server = server().start();
    let mut conn = server.connect();
    let keys = || (0..30_000).map(|n| format!("key:{n}"));
    run_many(
        &mut conn,
        keys().map(|key| command!("LOCK.ACQUIRE", key, "a", 600_000)),
        |_| {},
    );
    let requests = keys().map(|key| request!("box", 0, "LOCK.ACQUIRE", key, "b", 600_000));
    run_many(&mut conn, requests, |_| {});
    run_many(
        &mut conn,
        keys().map(|key| command!("LOCK.RELEASE", key, "a")),
        |left| {
            assert_eq!(int(&left), 0);
        },
    );
    assert_eq!(server.gauge("letters"), 30_000);
    let other = cost_of_asking(&mut conn, "c");
    let own = cost_of_asking(&mut conn, "b");
    // Visiting all its letters would take a thousand times as long.
    assert!(
        own < 50.0 * other,
        "{own} µs, and {other} for an owner without letters"
    );
}
