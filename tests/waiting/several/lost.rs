//! An undelivered grant of several keys is undone at each key that has not changed since.

use mortise_harness::redis::Cmd;
use mortise_harness::{
    Conn, Server, cmd, command, eventually, granted, hold_of, holders_of, int, is_nil, lock_info,
    mail, queued, waiter,
};

use super::{A, B, C, all_free, nobody_waits, several};

const KEYS: [&str; 3] = [A, B, C];

/// `m` waits for three keys, one of which `h` holds, and another request waits behind it at each. A callback during the grant of `m` runs
/// before `m` gets its reply.
struct Scene {
    server: Server,
    conn: Conn,
    m: Conn,
    behind: Vec<Conn>,
}

impl Scene {
    fn new() -> Scene {
        let server = Server::start_alone();
        server.load_actor();
        let mut conn = server.connect();
        cmd!(conn, "LOCK.ACQUIRE {B} h 60000");
        let m = server.waiter(&several("m", &KEYS, &["WAIT", "0"]));
        let behind = KEYS.map(|key| waiter!(server, "LOCK.ACQUIRE {key} w 60000 WAIT 0"));
        Scene {
            server,
            conn,
            m,
            behind: behind.into(),
        }
    }

    /// Runs `commands` between the grant and its delivery.
    fn grant_and(&mut self, commands: &[Cmd]) {
        for command in commands {
            let mut react = command!("ACTOR.ON lock.acquire {C} 1");
            for arg in command.args_iter() {
                if let mortise_harness::redis::Arg::Simple(word) = arg {
                    react.arg(word);
                }
            }
            self.conn.run(&react);
        }
        cmd!(self.conn, "LOCK.RELEASE {B} h");
        eventually("all callbacks have run", || {
            int(&cmd!(self.conn, "ACTOR.FIRED")) >= commands.len() as i64
        });
    }

    /// Checks that nothing is left of `m`.
    #[track_caller]
    fn those_behind_are_in(&mut self) {
        for waiter in &mut self.behind {
            granted(waiter);
        }
        for key in KEYS {
            assert_eq!(holders_of(&mut self.conn, key), ["w"]);
        }
        nobody_waits(&self.server, &KEYS);
    }

    fn kill(&self) -> Cmd {
        command!("CLIENT", "KILL", "ID", self.m.client_id())
    }
}

#[test]
fn a_client_killed_after_its_grant_frees_every_key() {
    let mut scene = Scene::new();
    let kill = scene.kill();
    scene.grant_and(&[kill]);
    scene.those_behind_are_in();
}

#[test]
fn a_lost_grant_stays_at_a_touched_key_and_is_undone_at_the_others() {
    for touch in [
        command!("LOCK.RENEW {B} m 60000"),
        command!("LOCK.ACQUIRE {B} m 60000"),
        command!("LOCK.PASS {B} m n 60000"),
    ] {
        let mut scene = Scene::new();
        let kill = scene.kill();
        scene.grant_and(&[touch, kill]);
        granted(&mut scene.behind[0]);
        granted(&mut scene.behind[2]);
        let holder = holders_of(&mut scene.conn, B);
        assert!(holder == ["m"] || holder == ["n"], "{holder:?}");
        for owner in ["m", "n"] {
            cmd!(scene.conn, "LOCK.RELEASE {B} {owner} ALL");
        }
        granted(&mut scene.behind[1]);
        nobody_waits(&scene.server, &KEYS);
    }
}

#[test]
fn a_lost_grant_does_not_affect_a_key_that_was_released_or_changed_since() {
    for change in [
        command!("LOCK.RELEASE {B} m"),
        command!("DEL {B}"),
        command!("RENAME {B} {{k}}other"),
        command!("SET {B} text"),
        command!("SWAPDB 0 1"),
        command!("FLUSHALL"),
        command!("LOCK.REVOKE {B} m"),
    ] {
        let mut scene = Scene::new();
        let kill = scene.kill();
        let what = format!(
            "{:?}",
            String::from_utf8_lossy(&change.get_packed_command())
        );
        scene.grant_and(&[change, kill]);
        granted(&mut scene.behind[0]);
        granted(&mut scene.behind[2]);
        if what.contains("SET") {
            scene.behind[1].try_recv().unwrap_err();
        } else {
            granted(&mut scene.behind[1]);
        }
        let mut conn = scene.server.connect();
        for db in [0, 1] {
            cmd!(conn, "SELECT {db}");
            for key in KEYS {
                if what.contains("SET") && key == B {
                    continue;
                }
                eventually("m holds nothing", || {
                    let holders = holders_of(&mut conn, key);
                    if holders.contains(&"m".to_owned()) {
                        Err(what.clone())
                    } else {
                        Ok(())
                    }
                });
            }
        }
        eventually("nothing is left to do", || {
            scene.server.gauge("blocked_clients") == 0 && scene.server.gauge("marked") == 0
        });
    }
}

#[test]
fn leave_at_any_key_ends_an_undelivered_grant_at_every_key() {
    for key in KEYS {
        let mut scene = Scene::new();
        scene.grant_and(&[command!("LOCK.LEAVE {key} m")]);
        assert!(is_nil(&scene.m.recv()));
        scene.those_behind_are_in();
    }
}

#[test]
fn leave_ends_a_delivered_grant_only_at_its_own_key() {
    let mut scene = Scene::new();
    cmd!(scene.conn, "LOCK.RELEASE {B} h");
    granted(&mut scene.m);
    assert_eq!(int(&cmd!(scene.conn, "LOCK.LEAVE {A} m")), 1);
    granted(&mut scene.behind[0]);
    assert_eq!(holders_of(&mut scene.conn, B), ["m"]);
    assert_eq!(holders_of(&mut scene.conn, C), ["m"]);
}

/// `m` was granted all keys by mail, and nobody has fetched the letter.
fn by_mail(server: &Server) -> (Conn, [Conn; 3]) {
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE {B} h 60000");
    queued(&conn.run(&several("m", &KEYS, &["WAIT", "0", "MAIL", "{k}box"])));
    let behind = KEYS.map(|key| waiter!(server, "LOCK.ACQUIRE {key} w 60000 WAIT 0"));
    cmd!(conn, "LOCK.RELEASE {B} h");
    eventually("m holds", || holders_of(&mut conn, B) == ["m"]);
    (conn, behind)
}

#[test]
fn a_letter_that_nobody_fetches_frees_every_key_when_its_box_closes() {
    let server = Server::builder().module_arg("mail-timeout", "2000").start();
    let (mut conn, mut behind) = by_mail(&server);
    let touched = int(&cmd!(conn, "LOCK.RENEW {C} m 60000"));
    granted(&mut behind[0]);
    granted(&mut behind[1]);
    assert_eq!(hold_of(&mut conn, C, "m").unwrap().token, touched);
    cmd!(conn, "LOCK.RELEASE {C} m");
    granted(&mut behind[2]);
    assert_eq!(server.gauge("letters"), 0);
    nobody_waits(&server, &KEYS);
}

#[test]
fn a_letter_that_was_fetched_keeps_the_grant_when_its_box_closes() {
    let server = Server::builder().module_arg("mail-timeout", "1000").start();
    let (mut conn, _behind) = by_mail(&server);
    assert_eq!(mail!(conn, "{{k}}box").results(), [("m", "granted")]);
    server.await_gauge("boxes", 0);
    for key in KEYS {
        assert_eq!(holders_of(&mut conn, key), ["m"]);
    }
}

#[test]
fn leave_ends_an_unsent_grant_at_every_key_and_a_sent_one_at_its_own() {
    for key in KEYS {
        let server = Server::start();
        let (mut conn, mut behind) = by_mail(&server);
        assert_eq!(int(&cmd!(conn, "LOCK.LEAVE {key} m")), 1);
        for waiter in &mut behind {
            granted(waiter);
        }
        nobody_waits(&server, &KEYS);
        let server = Server::start();
        let (mut conn, _behind) = by_mail(&server);
        assert_eq!(mail!(conn, "{{k}}box").letters.len(), 1);
        assert_eq!(int(&cmd!(conn, "LOCK.LEAVE {key} m FOR 60000")), 1);
        // The hold at that key is gone. The letter stays until it is acknowledged.
        assert_eq!(mail!(conn, "{{k}}box").letters.len(), 1);
        for other in KEYS {
            let holder = if other == key { "w" } else { "m" };
            assert_eq!(
                holders_of(&mut conn, other),
                [holder],
                "left {key}, checking {other}"
            );
        }
    }
}

#[test]
fn a_waiter_that_vanishes_before_its_grant_is_never_granted() {
    let mut scene = Scene::new();
    let release = command!("LOCK.RELEASE {B} h");
    let kill = scene.kill();
    // In one turn of the event loop, in both orders.
    scene.conn.pipeline(&[release, kill]);
    for waiter in &mut scene.behind {
        granted(waiter);
    }
    let mut conn = scene.server.connect();
    for key in KEYS {
        cmd!(conn, "LOCK.RELEASE {key} w");
        assert!(lock_info(&mut conn, key).is_none());
    }
    all_free(&mut conn, &KEYS);
    nobody_waits(&scene.server, &KEYS);
}
