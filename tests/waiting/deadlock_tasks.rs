//! Deadlocks between tasks, whose owners are the same up to their last `##`.

use mortise_harness::{
    Conn, Server, cmd, command, granted, holders_of, int, is_nil, queue_of, request, try_cmd,
    waiter,
};

fn hold(conn: &mut Conn, mode: &str, key: &str, owner: &str) {
    int(&cmd!(conn, mode, key, owner, 60_000));
}

#[track_caller]
fn refused(conn: &mut Conn, key: &str, owner: &str) {
    let error = try_cmd!(conn, "LOCK.WLOCK", key, owner, 60_000, "WAIT", 0).unwrap_err();
    assert!(error.starts_with("DEADLOCK "), "{error}");
}

#[test]
fn tasks_that_hold_by_several_names_and_wait_crosswise_are_a_deadlock() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.WLOCK", "k1", "task-a##1");
    hold(&mut conn, "LOCK.WLOCK", "k2", "task-b##1");
    let mut a = waiter!(server, "LOCK.WLOCK", "k2", "task-a##2", 60_000, "WAIT", 0);
    refused(&mut conn, "k1", "task-b##2");
    refused(&mut conn, "k1", "task-b##1");
    // The same text without the mark is another task.
    let mut other = waiter!(server, "LOCK.WLOCK", "k1", "task-b", 60_000, "WAIT", 0);
    cmd!(conn, "LOCK.RELEASE", "k2", "task-b##1");
    granted(&mut a);
    cmd!(conn, "LOCK.RELEASE", "k1", "task-a##1");
    granted(&mut other);
}

#[test]
fn only_the_last_mark_of_an_owner_counts() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.WLOCK", "k1", "a##x##1");
    hold(&mut conn, "LOCK.WLOCK", "k2", "b");
    let _a = waiter!(server, "LOCK.WLOCK", "k2", "a##y##1", 60_000, "WAIT", 0);
    let mut b = waiter!(server, "LOCK.WLOCK", "k1", "b", 60_000, "WAIT", 0);
    let _x = waiter!(server, "LOCK.WLOCK", "k2", "a##z##1", 60_000, "WAIT", 0);
    cmd!(conn, "LOCK.RELEASE", "k1", "a##x##1");
    granted(&mut b);
    assert_eq!(server.gauge("total_deadlocks"), 0);
}

#[test]
fn a_task_that_waits_for_itself_is_no_deadlock() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.WLOCK", "key", "task##1");
    let reply = cmd!(conn, "LOCK.WLOCK", "key", "task##2", 60_000, "WAIT", 50);
    assert!(is_nil(&reply));
    let mut second = waiter!(server, "LOCK.WLOCK", "key", "task##2", 60_000, "WAIT", 0);
    cmd!(conn, "LOCK.RELEASE", "key", "task##1");
    granted(&mut second);
    assert_eq!(holders_of(&mut conn, "key"), ["task##2"]);
    assert_eq!(server.gauge("total_deadlocks"), 0);
}

#[test]
fn tasks_with_several_names_in_one_queue_are_no_deadlock() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.WLOCK", "key", "a##1");
    let names = ["b##1", "a##2", "b##2", "c##1", "a##3"];
    let mut waiting =
        names.map(|name| waiter!(server, "LOCK.WLOCK", "key", name, 60_000, "WAIT", 0));
    assert_eq!(queue_of(&mut conn, "key"), names);
    let mut holder = "a##1";
    for (name, conn_of) in names.iter().zip(&mut waiting) {
        cmd!(conn, "LOCK.RELEASE", "key", holder);
        granted(conn_of);
        holder = name;
    }
    assert_eq!(server.gauge("total_deadlocks"), 0);
}

#[test]
fn a_task_among_many_readers_closes_a_cycle() {
    let server = Server::start();
    let mut conn = server.connect();
    for n in 0..300 {
        hold(&mut conn, "LOCK.RLOCK", "read", &format!("reader-{n}##1"));
    }
    hold(&mut conn, "LOCK.WLOCK", "write", "writer##1");
    let _reader = waiter!(server, "LOCK.RLOCK write reader-177##2 60000 WAIT 0");
    refused(&mut conn, "read", "writer##2");
    cmd!(conn, "LOCK.RELEASE", "read", "reader-177##1");
    let _writer = server.waiter(&command!("LOCK.WLOCK read writer##2 60000 WAIT 0"));
}

#[test]
fn a_request_by_mail_counts_like_a_blocked_one() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.WLOCK", "k1", "a##1");
    hold(&mut conn, "LOCK.WLOCK", "k2", "b##1");
    let queued = conn.run(&request!("box", 0, "LOCK.WLOCK", "k2", "a##2", 60_000));
    assert!(!is_nil(&queued));
    refused(&mut conn, "k1", "b##2");
    let error = conn.try_run(&request!("box", 0, "LOCK.WLOCK", "k1", "b##2", 60_000));
    assert!(error.unwrap_err().starts_with("DEADLOCK "));
}
