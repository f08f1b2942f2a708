//! Whatever ends a waiting LOCK.MACQUIRE ends it at all its keys, and the requests behind it are granted.

use mortise_harness::{
    Conn, Server, assert_error, bytes, cmd, command, granted, holders_of, int, is_nil, mail,
    queue_of, queued, refused, wait_for_sync, waiter,
};

use super::{A, B, C, all_free, by_mail, nobody_waits, several};

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
        cmd!(conn, "LOCK.ACQUIRE {B} h 60000");
        ask(&server, &mut conn);
        for key in [A, B, C] {
            assert_eq!(queue_of(&mut conn, key), ["m"]);
        }
        let behind = vec![
            waiter!(server, "LOCK.ACQUIRE {A} w 60000 WAIT 0"),
            waiter!(server, "LOCK.RLOCK {B} r 60000 WAIT 0"),
            waiter!(server, "LOCK.MACQUIRE n 60000 2 {C} {A} WAIT 0"),
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
            let wait = several("m", &[A, B, C], &["WAIT", limit]);
            blocked = Some(server.waiter(&wait));
        });
        (scene, blocked.unwrap())
    }

    /// The same, with `m` waiting by mail.
    fn by_mail(server: Server) -> Scene {
        Scene::of(server, |_, conn| {
            by_mail(conn, "m", &[A, B, C]);
        })
    }

    /// Checks that `m` has left all queues, that the requests behind it are granted, and that then nothing is left.
    #[track_caller]
    fn goes_on(mut self) {
        granted(&mut self.behind[0]);
        assert_eq!(queue_of(&mut self.conn, A), ["n"]);
        assert_eq!(queue_of(&mut self.conn, B), ["r"]);
        assert_eq!(queue_of(&mut self.conn, C), ["n"]);
        assert_eq!(int(&cmd!(self.conn, "LOCK.RELEASE {A} w")), 0);
        granted(&mut self.behind[2]);
        assert_eq!(int(&cmd!(self.conn, "LOCK.RELEASE {B} h")), 0);
        granted(&mut self.behind[1]);
        for (key, owner) in [(A, "n"), (B, "r"), (C, "n")] {
            assert_eq!(holders_of(&mut self.conn, key), [owner]);
            assert_eq!(int(&cmd!(self.conn, "LOCK.RELEASE {key} {owner}")), 0);
        }
        all_free(&mut self.conn, &[A, B, C]);
        nobody_waits(&self.server, &[A, B, C]);
    }
}

#[test]
fn a_time_out_ends_the_request_at_every_key() {
    let (scene, mut m) = Scene::blocked("1500");
    assert!(is_nil(&m.recv()));
    assert_eq!(scene.server.gauge("total_timeouts"), 1);
    scene.goes_on();
    let scene = Scene::new(|_, conn| {
        let by_mail = "WAIT 1500 MAIL {k}box";
        queued(&cmd!(conn, "LOCK.MACQUIRE m 60000 3 {A} {B} {C} {by_mail}"));
    });
    let mut reader = scene.server.connect();
    let mail = mail!(reader, "{{k}}box WAIT 2500");
    assert_eq!(mail.results(), [("m", "denied")]);
    assert_eq!(mail.only().keys.as_ref().unwrap(), &[A, B, C]);
    scene.goes_on();
}

#[test]
fn an_unblock_ends_the_request_at_every_key() {
    let (mut scene, mut m) = Scene::blocked("0");
    cmd!(scene.conn, "CLIENT", "UNBLOCK", m.client_id());
    assert!(is_nil(&m.recv()));
    scene.goes_on();
    let (mut scene, mut m) = Scene::blocked("0");
    cmd!(scene.conn, "CLIENT", "UNBLOCK", m.client_id(), "ERROR");
    assert_error(m.try_recv(), "UNBLOCKED ");
    scene.goes_on();
}

#[test]
fn a_closed_connection_ends_the_request_at_every_key() {
    let (mut scene, m) = Scene::blocked("0");
    cmd!(scene.conn, "CLIENT", "KILL", "ID", m.client_id());
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
        assert_eq!(int(&cmd!(scene.conn, "LOCK.LEAVE {key} m")), 1);
        assert!(is_nil(&m.recv()));
        assert_eq!(int(&cmd!(scene.conn, "LOCK.LEAVE {key} m")), 0);
        scene.goes_on();
        let mut scene = Scene::by_mail(Server::start());
        assert_eq!(int(&cmd!(scene.conn, "LOCK.LEAVE {key} m FOR 60000")), 1);
        assert!(mail!(scene.conn, "{{k}}box").letters.is_empty());
        refused!(scene.conn, "LEFT ", "LOCK.MACQUIRE m 60000 1 {key}");
        scene.goes_on();
    }
}

#[test]
fn a_key_that_becomes_another_type_ends_the_request_at_every_key() {
    let (mut scene, mut m) = Scene::blocked("0");
    // If the lock is held, the module notices at once and refuses all waiters there.
    cmd!(scene.conn, "SET {B} text");
    assert_error(m.try_recv(), "WRONGTYPE ");
    assert_error(scene.behind[1].try_recv(), "WRONGTYPE ");
    granted(&mut scene.behind[0]);
    cmd!(scene.conn, "LOCK.RELEASE {A} w");
    granted(&mut scene.behind[2]);
    nobody_waits(&scene.server, &[A, C]);
    // If it is free, the module notices when the request's turn comes.
    let (mut scene, mut m) = Scene::blocked("0");
    cmd!(scene.conn, "SET {C} text");
    cmd!(scene.conn, "LOCK.RELEASE {B} h");
    assert_error(m.try_recv(), "WRONGTYPE ");
    assert_error(scene.behind[2].try_recv(), "WRONGTYPE ");
    granted(&mut scene.behind[0]);
    granted(&mut scene.behind[1]);
    nobody_waits(&scene.server, &[A, B]);
    // The same by mail, when another client requests the key.
    let mut scene = Scene::by_mail(Server::start());
    cmd!(scene.conn, "SET {C} text");
    refused!(scene.conn, "WRONGTYPE ", "LOCK.ACQUIRE {C} x 1000");
    cmd!(scene.conn, "LOCK.RELEASE {B} h");
    let mail = mail!(scene.conn, "{{k}}box WAIT 2500");
    let error = mail.only().error.as_deref();
    assert!(error.unwrap().starts_with("WRONGTYPE "));
    nobody_waits(&scene.server, &[A, B]);
}

#[test]
fn a_server_that_becomes_a_replica_ends_the_request_at_every_key() {
    let other = Server::start_alone();
    let mut m = None;
    let mut scene = Scene::of(Server::start_alone(), |server, _| {
        m = Some(server.waiter(&several("m", &[A, B, C], &["WAIT", "0"])));
    });
    by_mail(&mut scene.conn, "o", &[C, B]);
    cmd!(scene.conn, "REPLICAOF", "127.0.0.1", other.port());
    assert_error(m.unwrap().try_recv(), "UNBLOCKED ");
    for waiter in &mut scene.behind {
        assert_error(waiter.try_recv(), "UNBLOCKED ");
    }
    wait_for_sync(&other, &scene.server);
    let mut conn = scene.server.connect();
    scene.server.await_gauge("waiters", 0);
    all_free(&mut conn, &[A, B, C]);
    refused!(conn, "READONLY ", "LOCK.MACQUIRE m 60000 1 {A}");
    cmd!(conn, "REPLICAOF NO ONE");
    int(&cmd!(conn, "LOCK.MACQUIRE m 60000 3 {A} {B} {C}"));
    nobody_waits(&scene.server, &[A, B, C]);
}

#[test]
fn a_closed_box_ends_the_request_at_every_key() {
    let server = Server::builder().module_arg("mail-timeout", "1000").start();
    let scene = Scene::by_mail(server);
    scene.server.await_gauge("boxes", 0);
    scene.goes_on();
}

#[test]
fn a_pass_of_one_key_to_its_owner_ends_the_request_at_every_key() {
    // At a key where it is the first, and at one where others stand ahead of it.
    for ahead in [false, true] {
        let (server, mut conn) = Server::start_connected();
        cmd!(conn, "LOCK.ACQUIRE {B} h 60000");
        let first = ahead.then(|| waiter!(server, "LOCK.RLOCK {B} f 60000 WAIT 0"));
        let mut m = waiter!(server, "LOCK.MACQUIRE m 60000 2 {A} {B} WAIT 0");
        let mut w = waiter!(server, "LOCK.ACQUIRE {A} w 60000 WAIT 0");
        int(&cmd!(conn, "LOCK.PASS {B} h m 60000"));
        assert_error(m.try_recv(), "ERR the owner holds one");
        granted(&mut w);
        assert_eq!(holders_of(&mut conn, B), ["m"]);
        cmd!(conn, "LOCK.RELEASE {B} m");
        if let Some(mut first) = first {
            granted(&mut first);
        }
        nobody_waits(&server, &[A, B]);
    }
}

#[test]
fn a_hold_of_its_owner_by_rename_restore_copy_or_swapdb_ends_the_request_at_every_key() {
    let moves: [fn(&mut Conn); 4] = [
        |conn| drop(cmd!(conn, "RENAME {{k}}src {B}")),
        |conn| {
            let dump = bytes(&cmd!(conn, "DUMP {{k}}src"));
            cmd!(conn, "RESTORE", B, 0, dump, "REPLACE");
        },
        |conn| drop(cmd!(conn, "COPY {{k}}src {B} REPLACE")),
        |conn| {
            cmd!(conn, "SELECT 1");
            cmd!(conn, "LOCK.ACQUIRE {B} m 60000");
            cmd!(conn, "SWAPDB 0 1");
            cmd!(conn, "SELECT 0");
        },
    ];
    for change in moves {
        for ahead in [false, true] {
            let (server, mut conn) = Server::builder().alone().start_connected();
            cmd!(conn, "LOCK.ACQUIRE {{k}}src m 60000");
            cmd!(conn, "LOCK.RLOCK {B} h 60000");
            let first = ahead.then(|| waiter!(server, "LOCK.ACQUIRE {B} f 60000 WAIT 0"));
            let mut m = waiter!(server, "LOCK.MACQUIRE m 60000 2 {A} {B} WAIT 0");
            let mut w = waiter!(server, "LOCK.ACQUIRE {A} w 60000 WAIT 0");
            change(&mut conn);
            assert_error(m.try_recv(), "ERR the owner holds one");
            granted(&mut w);
            cmd!(conn, "LOCK.LEAVE {B} m");
            if let Some(mut first) = first {
                granted(&mut first);
            }
            nobody_waits(&server, &[A, B]);
        }
    }
}
