//! Whatever ends a waiting LOCK.MACQUIRE ends it at all its keys, and the requests behind it are granted.

use mortise_harness::redis::Value;
use mortise_harness::{
    Conn, Server, cmd, command, eventually, granted, holders_of, int, is_nil, mail, queue_of,
    queued, wait_for_sync, waiter,
};

use super::{A, B, C, all_free, nobody_waits, several};

const BY_MAIL: [&str; 4] = ["WAIT", "0", "MAIL", "{k}box"];

/// `h` holds `b`, and `m` waits for all three keys. Behind it wait a writer at `a`, a reader at `b` and another request for
/// `c` and `a`.
struct Scene {
    server: Server,
    conn: Conn,
    behind: Vec<Conn>,
}

impl Scene {
    fn new(ask: impl FnOnce(&Server, &mut Conn)) -> Scene {
        Scene::of(Server::start(), ask)
    }

    fn of(server: Server, ask: impl FnOnce(&Server, &mut Conn)) -> Scene {
        let mut conn = server.connect();
        cmd!(conn, "LOCK.ACQUIRE", B, "h", 60_000);
        ask(&server, &mut conn);
        for key in [A, B, C] {
            assert_eq!(queue_of(&mut conn, key), ["m"]);
        }
        let behind = vec![
            waiter!(server, "LOCK.ACQUIRE", A, "w", 60_000, "WAIT", 0),
            waiter!(server, "LOCK.RLOCK", B, "r", 60_000, "WAIT", 0),
            server.waiter(&several("n", &[C, A], &["WAIT", "0"])),
        ];
        Scene {
            server,
            conn,
            behind,
        }
    }

    /// The same, with `m` blocked.
    fn blocked(limit: &str) -> (Scene, Conn) {
        let mut blocked = None;
        let scene = Scene::new(|server, _| {
            blocked = Some(server.waiter(&several("m", &[A, B, C], &["WAIT", limit])));
        });
        (scene, blocked.unwrap())
    }

    /// Checks that `m` has left all queues, that the requests behind it are granted, and that then nothing is left.
    #[track_caller]
    fn goes_on(mut self) {
        granted(&mut self.behind[0]);
        assert_eq!(queue_of(&mut self.conn, A), ["n"]);
        assert_eq!(queue_of(&mut self.conn, B), ["r"]);
        assert_eq!(queue_of(&mut self.conn, C), ["n"]);
        assert_eq!(int(&cmd!(self.conn, "LOCK.RELEASE", A, "w")), 0);
        granted(&mut self.behind[2]);
        assert_eq!(int(&cmd!(self.conn, "LOCK.RELEASE", B, "h")), 0);
        granted(&mut self.behind[1]);
        for (key, owner) in [(A, "n"), (B, "r"), (C, "n")] {
            assert_eq!(holders_of(&mut self.conn, key), [owner]);
            assert_eq!(int(&cmd!(self.conn, "LOCK.RELEASE", key, owner)), 0);
        }
        all_free(&mut self.conn, &[A, B, C]);
        nobody_waits(&self.server, &[A, B, C]);
    }
}

#[track_caller]
fn refused(reply: Result<Value, String>, start: &str) {
    let error = reply.unwrap_err();
    assert!(error.starts_with(start), "{error}");
}

#[test]
fn a_time_out_ends_the_request_at_every_key() {
    let (scene, mut m) = Scene::blocked("1500");
    assert!(is_nil(&m.recv()));
    assert_eq!(scene.server.gauge("total_timeouts"), 1);
    scene.goes_on();
    let scene = Scene::new(|_, conn| {
        queued(&conn.run(&several(
            "m",
            &[A, B, C],
            &["WAIT", "1500", "MAIL", "{k}box"],
        )));
    });
    let mut reader = scene.server.connect();
    let mail = mail!(reader, "{k}box", "WAIT", 2_500);
    assert_eq!(mail.results(), [("m", "denied")]);
    assert_eq!(mail.only().keys.as_ref().unwrap(), &[A, B, C]);
    scene.goes_on();
}

#[test]
fn an_unblock_ends_the_request_at_every_key() {
    let (mut scene, mut m) = Scene::blocked("0");
    assert_eq!(
        int(&cmd!(scene.conn, "CLIENT", "UNBLOCK", m.client_id())),
        1
    );
    assert!(is_nil(&m.recv()));
    scene.goes_on();
    let (mut scene, mut m) = Scene::blocked("0");
    assert_eq!(
        int(&cmd!(
            scene.conn,
            "CLIENT",
            "UNBLOCK",
            m.client_id(),
            "ERROR"
        )),
        1
    );
    refused(m.try_recv(), "UNBLOCKED ");
    scene.goes_on();
}

#[test]
fn a_closed_connection_ends_the_request_at_every_key() {
    let (mut scene, m) = Scene::blocked("0");
    assert_eq!(
        int(&cmd!(scene.conn, "CLIENT", "KILL", "ID", m.client_id())),
        1
    );
    scene.goes_on();
    let (scene, m) = Scene::blocked("0");
    drop(m);
    scene.goes_on();
    // The server does not read QUIT while the client is blocked, but notices the end of the connection.
    let (scene, mut m) = Scene::blocked("0");
    m.submit(&command!("QUIT"));
    drop(m);
    scene.goes_on();
}

#[test]
fn leave_at_any_key_ends_the_request_at_every_key() {
    for key in [A, B, C] {
        let (mut scene, mut m) = Scene::blocked("0");
        assert_eq!(int(&cmd!(scene.conn, "LOCK.LEAVE", key, "m")), 1);
        assert!(is_nil(&m.recv()));
        assert_eq!(int(&cmd!(scene.conn, "LOCK.LEAVE", key, "m")), 0);
        scene.goes_on();
        let mut scene = Scene::new(|_, conn| {
            queued(&conn.run(&several("m", &[A, B, C], &BY_MAIL)));
        });
        assert_eq!(
            int(&cmd!(scene.conn, "LOCK.LEAVE", key, "m", "FOR", 60_000)),
            1
        );
        assert!(mail!(scene.conn, "{{k}}box").letters.is_empty());
        refused(
            scene.conn.try_run(&several("m", &[A, B, C], &BY_MAIL)),
            "LEFT ",
        );
        scene.goes_on();
    }
}

#[test]
fn a_key_that_becomes_another_type_ends_the_request_at_every_key() {
    let (mut scene, mut m) = Scene::blocked("0");
    // If the lock is held, the module notices at once and refuses all waiters there.
    cmd!(scene.conn, "SET", B, "text");
    refused(m.try_recv(), "WRONGTYPE ");
    refused(scene.behind[1].try_recv(), "WRONGTYPE ");
    granted(&mut scene.behind[0]);
    cmd!(scene.conn, "LOCK.RELEASE", A, "w");
    granted(&mut scene.behind[2]);
    nobody_waits(&scene.server, &[A, C]);
    // If it is free, the module notices when the request's turn comes.
    let (mut scene, mut m) = Scene::blocked("0");
    cmd!(scene.conn, "SET", C, "text");
    cmd!(scene.conn, "LOCK.RELEASE", B, "h");
    refused(m.try_recv(), "WRONGTYPE ");
    refused(scene.behind[2].try_recv(), "WRONGTYPE ");
    granted(&mut scene.behind[0]);
    granted(&mut scene.behind[1]);
    nobody_waits(&scene.server, &[A, B]);
    // The same by mail, when another client requests the key.
    let mut scene = Scene::new(|_, conn| {
        queued(&conn.run(&several("m", &[A, B, C], &BY_MAIL)));
    });
    cmd!(scene.conn, "SET", C, "text");
    refused(
        scene.conn.try_run(&command!("LOCK.ACQUIRE", C, "x", 1_000)),
        "WRONGTYPE ",
    );
    cmd!(scene.conn, "LOCK.RELEASE", B, "h");
    let mail = mail!(scene.conn, "{k}box", "WAIT", 2_500);
    assert!(
        mail.only()
            .error
            .as_ref()
            .unwrap()
            .starts_with("WRONGTYPE ")
    );
    nobody_waits(&scene.server, &[A, B]);
}

#[test]
fn a_server_that_becomes_a_replica_ends_the_request_at_every_key() {
    let other = Server::start_alone();
    let mut m = None;
    let mut scene = Scene::of(Server::start_alone(), |server, _| {
        m = Some(server.waiter(&several("m", &[A, B, C], &["WAIT", "0"])));
    });
    queued(&scene.conn.run(&several("o", &[C, B], &BY_MAIL)));
    cmd!(scene.conn, "REPLICAOF", "127.0.0.1", other.port());
    refused(m.unwrap().try_recv(), "UNBLOCKED ");
    for waiter in &mut scene.behind {
        refused(waiter.try_recv(), "UNBLOCKED ");
    }
    wait_for_sync(&other, &scene.server);
    let mut conn = scene.server.connect();
    eventually("nobody waits", || scene.server.gauge("waiters") == 0);
    all_free(&mut conn, &[A, B, C]);
    refused(conn.try_run(&several("m", &[A], &[])), "READONLY ");
    cmd!(conn, "REPLICAOF", "NO", "ONE");
    int(&conn.run(&several("m", &[A, B, C], &[])));
    nobody_waits(&scene.server, &[A, B, C]);
}

#[test]
fn a_closed_box_ends_the_request_at_every_key() {
    let server = Server::builder().module_arg("mail-timeout", "1000").start();
    let scene = Scene::of(server, |_, conn| {
        queued(&conn.run(&several("m", &[A, B, C], &BY_MAIL)));
    });
    eventually("the box goes", || scene.server.gauge("boxes") == 0);
    scene.goes_on();
}

#[test]
fn a_pass_of_one_key_to_its_owner_ends_the_request_at_every_key() {
    // At a key where it is the first, and at one where others stand ahead of it.
    for ahead in [false, true] {
        let server = Server::start();
        let mut conn = server.connect();
        cmd!(conn, "LOCK.ACQUIRE", B, "h", 60_000);
        let first = ahead.then(|| waiter!(server, "LOCK.RLOCK", B, "f", 60_000, "WAIT", 0));
        let mut m = server.waiter(&several("m", &[A, B], &["WAIT", "0"]));
        let mut w = waiter!(server, "LOCK.ACQUIRE", A, "w", 60_000, "WAIT", 0);
        int(&cmd!(conn, "LOCK.PASS", B, "h", "m", 60_000));
        refused(m.try_recv(), "ERR the owner holds one");
        granted(&mut w);
        assert_eq!(holders_of(&mut conn, B), ["m"]);
        cmd!(conn, "LOCK.RELEASE", B, "m");
        if let Some(mut first) = first {
            granted(&mut first);
        }
        nobody_waits(&server, &[A, B]);
    }
}

#[test]
fn a_hold_of_its_owner_by_rename_restore_copy_or_swapdb_ends_the_request_at_every_key() {
    let moves: [fn(&mut Conn); 4] = [
        |conn| drop(cmd!(conn, "RENAME", "{k}src", B)),
        |conn| {
            let dump = mortise_harness::bytes(&cmd!(conn, "DUMP", "{k}src"));
            cmd!(conn, "RESTORE", B, 0, dump, "REPLACE");
        },
        |conn| drop(cmd!(conn, "COPY", "{k}src", B, "REPLACE")),
        |conn| {
            cmd!(conn, "SELECT", 1);
            cmd!(conn, "LOCK.ACQUIRE", B, "m", 60_000);
            cmd!(conn, "SWAPDB", 0, 1);
            cmd!(conn, "SELECT", 0);
        },
    ];
    for change in moves {
        for ahead in [false, true] {
            let server = Server::start_alone();
            let mut conn = server.connect();
            cmd!(conn, "LOCK.ACQUIRE", "{k}src", "m", 60_000);
            cmd!(conn, "LOCK.RLOCK", B, "h", 60_000);
            let first = ahead.then(|| waiter!(server, "LOCK.ACQUIRE", B, "f", 60_000, "WAIT", 0));
            let mut m = server.waiter(&several("m", &[A, B], &["WAIT", "0"]));
            let mut w = waiter!(server, "LOCK.ACQUIRE", A, "w", 60_000, "WAIT", 0);
            change(&mut conn);
            refused(m.try_recv(), "ERR the owner holds one");
            granted(&mut w);
            cmd!(conn, "LOCK.LEAVE", B, "m");
            if let Some(mut first) = first {
                granted(&mut first);
            }
            nobody_waits(&server, &[A, B]);
        }
    }
}
