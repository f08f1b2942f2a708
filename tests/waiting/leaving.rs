//! Waiters that leave before their turn: they time out, are unblocked or killed, or disconnect.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use mortise_harness::{
    Conn, Server, cmd, command, eventually, granted, holders_of, int, is_nil, queue_of, waiter,
};

/// `a` reads, a writer waits for it, and behind the writer two readers.
struct Scene {
    server: Server,
    conn: Conn,
    writer: Conn,
    readers: [Conn; 2],
}

impl Scene {
    fn new(writers_wait: u64) -> Scene {
        let server = Server::start();
        let mut conn = server.connect();
        cmd!(conn, "LOCK.RLOCK", "key", "a", 60_000);
        let writer = waiter!(server, "LOCK.WLOCK key w 60000 WAIT {writers_wait}");
        let readers = ["r1", "r2"]
            .map(|owner| waiter!(server, "LOCK.RLOCK", "key", owner, 60_000, "WAIT", 0));
        Scene {
            server,
            conn,
            writer,
            readers,
        }
    }

    /// Checks that the writer has left, that the readers are granted, and that nothing else is left.
    #[track_caller]
    fn readers_get_in(mut self) {
        self.readers.iter_mut().for_each(|reader| {
            granted(reader);
        });
        assert_eq!(holders_of(&mut self.conn, "key"), ["a", "r1", "r2"]);
        assert_eq!(self.server.gauge("waiters"), 0);
        eventually("nobody is blocked", || {
            self.server.gauge("blocked_clients") == 0
        });
    }
}

#[test]
fn a_writer_that_times_out_lets_the_readers_behind_it_in() {
    let mut scene = Scene::new(500);
    assert!(is_nil(&scene.writer.recv()));
    scene.readers_get_in();
}

#[test]
fn a_writer_that_disconnects_lets_the_readers_behind_it_in() {
    let mut scene = Scene::new(0);
    scene.writer = scene.server.connect();
    scene.readers_get_in();
}

#[test]
fn a_writer_that_is_killed_lets_the_readers_behind_it_in() {
    let mut scene = Scene::new(0);
    cmd!(scene.conn, "CLIENT", "KILL", "ID", scene.writer.client_id());
    assert!(
        scene
            .writer
            .try_recv()
            .unwrap_err()
            .starts_with("connection closed")
    );
    scene.readers_get_in();
}

#[test]
fn a_writer_that_is_unblocked_gets_null_and_lets_the_readers_behind_it_in() {
    let mut scene = Scene::new(0);
    let id = scene.writer.client_id();
    assert_eq!(int(&cmd!(scene.conn, "CLIENT", "UNBLOCK", id)), 1);
    assert!(is_nil(&scene.writer.recv()));
    assert_eq!(int(&cmd!(scene.conn, "CLIENT", "UNBLOCK", id)), 0);
    scene.readers_get_in();
}

#[test]
fn a_writer_that_is_unblocked_as_timed_out_gets_null() {
    let mut scene = Scene::new(0);
    let id = scene.writer.client_id();
    cmd!(scene.conn, "CLIENT", "UNBLOCK", id, "TIMEOUT");
    assert!(is_nil(&scene.writer.recv()));
    scene.readers_get_in();
}

#[test]
fn a_writer_that_is_unblocked_with_an_error_lets_the_readers_behind_it_in() {
    let mut scene = Scene::new(0);
    let id = scene.writer.client_id();
    assert_eq!(int(&cmd!(scene.conn, "CLIENT", "UNBLOCK", id, "ERROR")), 1);
    let error = scene.writer.try_recv().unwrap_err();
    assert!(error.starts_with("UNBLOCKED "), "{error}");
    // The connection still works.
    assert!(is_nil(&cmd!(scene.writer, "GET", "other")));
    scene.readers_get_in();
}

#[test]
fn an_unblocked_client_can_wait_again() {
    let scene = Scene::new(0);
    let (mut conn, mut writer) = (scene.conn, scene.writer);
    for _ in 0..3 {
        cmd!(conn, "CLIENT", "UNBLOCK", writer.client_id());
        assert!(is_nil(&writer.recv()));
        writer.send(&["LOCK.WLOCK", "key", "w", "60000", "WAIT", "0"]);
        scene.server.await_blocked(&writer);
    }
    for owner in ["a", "r1", "r2"] {
        cmd!(conn, "LOCK.RELEASE", "key", owner);
    }
    granted(&mut writer);
}

#[test]
fn a_waiter_in_the_middle_that_leaves_changes_nothing_for_the_others() {
    let server = Server::start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
    let mut waiting: Vec<Conn> = ["b", "c", "d"]
        .map(|owner| waiter!(server, "LOCK.ACQUIRE", "key", owner, 60_000, "WAIT", 0))
        .into();
    drop(waiting.remove(1));
    eventually("c has left", || queue_of(&mut a, "key") == ["b", "d"]);
    cmd!(a, "LOCK.RELEASE", "key", "a");
    granted(&mut waiting[0]);
    cmd!(a, "LOCK.RELEASE", "key", "b");
    granted(&mut waiting[1]);
}

#[test]
fn a_waiter_whose_process_is_killed_leaves_the_queue() {
    let scene = Scene::new(0);
    drop(scene.writer);
    let mut conn = scene.conn;
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{}; echo 'LOCK.WLOCK other w 60000 WAIT 0' >&3; cat <&3",
        scene.server.port()
    );
    cmd!(conn, "LOCK.RLOCK", "other", "a", 60_000);
    let mut process = Command::new("bash")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    eventually("the process waits", || {
        queue_of(&mut conn, "other") == ["w"]
    });
    let mut reader = waiter!(scene.server, "LOCK.RLOCK", "other", "r", 60_000, "WAIT", 0);
    kill_group(&mut process);
    granted(&mut reader);
    assert_eq!(holders_of(&mut conn, "other"), ["a", "r"]);
}

/// Kills the process and its children, which share the connection.
fn kill_group(process: &mut std::process::Child) {
    let group = format!("-{}", process.id());
    let status = Command::new("kill").args(["-KILL", "--", &group]).status();
    assert!(status.unwrap().success());
    process.wait().unwrap();
}

#[test]
fn killing_every_client_at_once_leaves_no_waiter() {
    let server = Server::start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
    let asking =
        (0..100).map(|n| command!("LOCK.ACQUIRE", "key", format!("w{n}"), 60_000, "WAIT", 0));
    let waiting = server.waiters(asking);
    cmd!(a, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    drop(waiting);
    eventually("nobody is blocked", || server.gauge("blocked_clients") == 0);
    assert_eq!(server.gauge("waiters"), 0);
    assert_eq!(holders_of(&mut a, "key"), ["a"]);
}

#[test]
fn a_dead_waiter_at_the_head_does_not_block_a_free_lock() {
    // Over Unix sockets, where later data on another connection cannot arrive before the end of this one.
    let server = Server::builder().unix_socket().start();
    let mut a = server.connect_unix();
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
    let [dead, mut next] = ["dead", "next"].map(|owner| {
        let mut waiter = server.connect_unix();
        waiter.submit(&command!("LOCK.ACQUIRE", "key", owner, 60_000, "WAIT", 0));
        server.await_blocked(&waiter);
        waiter
    });
    drop(dead);
    cmd!(a, "LOCK.RELEASE", "key", "a");
    granted(&mut next);
}

#[test]
fn a_wait_that_times_out_at_the_end_of_the_lease_gets_one_reply() {
    let server = Server::start();
    let mut a = server.connect();
    for round in 0..20 {
        cmd!(a, "LOCK.ACQUIRE", "key", "a", 40);
        let mut b = server.connect();
        b.send(&["LOCK.ACQUIRE", "key", "b", "60000", "WAIT", "40"]);
        b.send(&["PING"]);
        let reply = b.recv();
        let holds = holders_of(&mut a, "key") == ["b"];
        assert_eq!(!is_nil(&reply), holds, "round {round}: {reply:?}");
        assert_eq!(mortise_harness::text(&b.recv()), "PONG");
        cmd!(a, "LOCK.RELEASE", "key", "b");
        cmd!(a, "LOCK.RELEASE", "key", "a");
    }
}
