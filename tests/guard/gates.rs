//! A guard is a write, whatever is inside: whatever stops writes stops a guard.

use std::time::Duration;

use mortise_harness::{
    Server, assert_error, assert_same_data, cmd, int, is_nil, refused, send, text, wait_for_sync,
};

use super::{guard, held};

#[test]
fn a_pause_of_writes_delays_even_a_guarded_read() {
    let (server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    let mut operator = server.connect();
    cmd!(operator, "CLIENT PAUSE 60000 WRITE");
    cmd!(conn, "GET data");
    send!(conn, "LOCK.GUARD key a {token} GET data");
    assert!(conn.recv_within(Duration::from_millis(200)).is_none());
    cmd!(operator, "CLIENT UNPAUSE");
    assert!(is_nil(&conn.recv()));
}

#[test]
fn a_pause_of_writes_with_a_replica_and_an_aof_harms_nothing() {
    let primary = Server::builder().config("appendonly", "yes").start();
    let replica = primary.start_replica();
    let mut conn = primary.connect();
    let token = held(&mut conn, "key");
    let mut operator = primary.connect();
    cmd!(operator, "CLIENT PAUSE 60000 WRITE");
    send!(conn, "LOCK.GUARD key a {token} SET data 1");
    let script = "return redis.call('LOCK.GUARD', KEYS[1], 'a', ARGV[1], 'SET', 'other', '1')";
    let mut scripting = primary.connect();
    send!(scripting, "EVAL", script, 2, "key", "other", token);
    assert!(conn.recv_within(Duration::from_millis(100)).is_none());
    assert!(scripting.recv_within(Duration::from_millis(100)).is_none());
    cmd!(operator, "CLIENT UNPAUSE");
    assert_eq!(text(&conn.recv()), "OK");
    assert_eq!(text(&scripting.recv()), "OK");
    assert_same_data(&primary, &replica);
}

#[test]
fn a_replica_refuses_a_guard_even_a_writable_one() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    let token = held(&mut primary.connect(), "key");
    wait_for_sync(&primary, &replica);
    let mut conn = replica.connect();
    for read_only in ["yes", "no"] {
        cmd!(conn, "CONFIG SET replica-read-only {read_only}");
        refused!(conn, "READONLY ", "LOCK.GUARD key a {token}");
        refused!(conn, "READONLY ", "LOCK.GUARD key a {token} GET data");
    }
}

#[test]
fn with_too_few_replicas_a_guard_is_refused_whatever_is_inside() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    cmd!(conn, "CONFIG SET min-replicas-to-write 1");
    for inside in ["GET data", "SET data 1", "LOCK.RELEASE key a", ""] {
        assert_error(guard(&mut conn, token, inside), "NOREPLICAS ");
    }
    cmd!(conn, "CONFIG SET min-replicas-to-write 0");
    assert_eq!(int(&cmd!(conn, "EXISTS data")), 0);
}

#[test]
fn when_memory_is_full_only_commands_inside_that_need_none_run() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    cmd!(conn, "SET data value");
    cmd!(conn, "CONFIG SET maxmemory 1");
    for inside in ["SET more x", "LOCK.ACQUIRE more a 1000"] {
        assert_error(guard(&mut conn, token, inside), "OOM ");
    }
    assert_eq!(int(&cmd!(conn, "LOCK.GUARD key a {token}")), token);
    let got = guard(&mut conn, token, "GET data").unwrap();
    assert_eq!(text(&got), "value");
    assert_eq!(int(&cmd!(conn, "LOCK.GUARD key a {token} DEL data")), 1);
    let release = cmd!(conn, "LOCK.GUARD key a {token} LOCK.RELEASE key a");
    assert_eq!(int(&release), 0);
    cmd!(conn, "CONFIG SET maxmemory 0");
    assert_eq!(int(&cmd!(conn, "EXISTS more")), 0);
}
