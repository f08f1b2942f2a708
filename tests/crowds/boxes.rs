//! Many boxes, and many letters of one owner.

use mortise_harness::{
    Conn, Server, cmd, command, eventually_within, int, mail, request, send, text,
};

use crate::{MANY, PATIENCE, assert_never_long, await_gauge, run_many, server_alone};

fn make_boxes(conn: &mut Conn) {
    let calls = (0..MANY).map(|n| command!("LOCK.MAIL box:{n}"));
    run_many(conn, calls, drop);
}

fn used_memory(server: &Server) -> i64 {
    server.info("memory")["used_memory"].parse().unwrap()
}

#[test]
fn a_primary_with_many_boxes_can_become_a_replica() {
    let (_turn, server, mut conn) = server_alone();
    make_boxes(&mut conn);
    assert_eq!(server.gauge("boxes"), MANY as i64);
    cmd!(conn, "REPLICAOF 127.0.0.1 1");
    await_gauge(&server, "boxes", 0);
    cmd!(conn, "REPLICAOF NO ONE");
    mail!(conn, "box:0");
    assert_eq!(server.gauge("boxes"), 1);
    assert_never_long(&server);
}

#[test]
fn a_primary_that_becomes_a_replica_answers_every_waiting_mail_call() {
    const READERS: usize = 3_000;
    let (_turn, server, mut conn) = server_alone();
    let mut readers: Vec<Conn> = (0..READERS).map(|_| server.connect()).collect();
    for (n, reader) in readers.iter_mut().enumerate() {
        send!(reader, "LOCK.MAIL box:{n} WAIT 0");
    }
    await_gauge(&server, "blocked_clients", READERS as i64);
    cmd!(conn, "REPLICAOF 127.0.0.1 1");
    for reader in &mut readers {
        let error = reader.try_recv().expect_err("a replica has no boxes");
        assert!(error.starts_with("UNBLOCKED "), "{error}");
    }
    await_gauge(&server, "boxes", 0);
    // The server gives a client up some time after its reply.
    await_gauge(&server, "blocked_clients", 0);
    assert_never_long(&server);
}

#[test]
fn many_abandoned_boxes_are_closed_and_free_their_memory() {
    let (_turn, server, mut conn) = server_alone();
    let before = used_memory(&server);
    make_boxes(&mut conn);
    let taken = used_memory(&server) - before;
    cmd!(conn, "CONFIG SET lock.mail-timeout 1000");
    make_boxes(&mut conn);
    await_gauge(&server, "boxes", 0);
    assert_never_long(&server);
    eventually_within(PATIENCE, "the memory is freed", || {
        used_memory(&server) - before < taken / 4
    });
}

/// Requests each of the first 100 keys, which are held, by mail. Returns the server's processor time for it.
fn cost_of_asking(conn: &mut Conn, owner: &str) -> f64 {
    cmd!(conn, "CONFIG RESETSTAT");
    let requests = (0..100).map(|n| request!("other", 0, "LOCK.ACQUIRE key:{n} {owner} 600000"));
    run_many(conn, requests, drop);
    let stats = text(&cmd!(conn, "INFO commandstats"));
    let line = stats
        .lines()
        .find(|line| line.starts_with("cmdstat_LOCK.ACQUIRE"));
    let (_, cost) = line.unwrap().split_once("usec_per_call=").unwrap();
    cost.split(',').next().unwrap().parse().unwrap()
}

#[test]
fn a_request_of_an_owner_with_many_letters_is_as_fast_as_any() {
    let (_turn, server, mut conn) = server_alone();
    let keys = || (0..30_000).map(|n| format!("key:{n}"));
    let held = keys().map(|key| command!("LOCK.ACQUIRE {key} a 600000"));
    run_many(&mut conn, held, drop);
    let requests = keys().map(|key| request!("box", 0, "LOCK.ACQUIRE {key} b 600000"));
    run_many(&mut conn, requests, drop);
    let releases = keys().map(|key| command!("LOCK.RELEASE {key} a"));
    run_many(&mut conn, releases, |left| assert_eq!(int(&left), 0));
    assert_eq!(server.gauge("letters"), 30_000);
    let other = cost_of_asking(&mut conn, "c");
    let own = cost_of_asking(&mut conn, "b");
    // Visiting all its letters would take a thousand times as long.
    assert!(
        own < 50.0 * other,
        "{own} µs, and {other} for an owner without letters"
    );
}
