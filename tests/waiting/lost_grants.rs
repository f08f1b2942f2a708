//! Grants that cannot be delivered, and grants that meet an unblock. The module delivers the grant of a release at the end of the event
//! loop's turn, so a command in the same write runs before that.

use mortise_harness::redis::{Cmd, Value};
use mortise_harness::{
    Conn, Server, assert_error, cmd, command, eventually, granted, hold_of, holders_of, int,
    is_nil, lock_info, queue_of, text, wait_for_sync, waiter,
};

/// `a` holds `key` to write, and `b` and `c` wait for it, in this order.
struct Scene {
    server: Server,
    a: Conn,
    b: Conn,
    c: Conn,
}

impl Scene {
    fn new() -> Scene {
        let server = Server::start_alone();
        let mut a = server.connect();
        cmd!(a, "LOCK.ACQUIRE key a 60000");
        let b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
        let c = waiter!(server, "LOCK.ACQUIRE key c 60000 WAIT 0");
        Scene { server, a, b, c }
    }

    fn release(&self) -> Cmd {
        command!("LOCK.RELEASE key a")
    }

    fn kill_b(&self) -> Cmd {
        command!("CLIENT", "KILL", "ID", self.b.client_id())
    }

    fn unblock_b(&self, how: &str) -> Cmd {
        command!("CLIENT", "UNBLOCK", self.b.client_id(), how)
    }

    /// Checks that nothing is left of any of them.
    #[track_caller]
    fn ends_free(mut self) {
        for owner in ["a", "b", "c"] {
            cmd!(self.a, "LOCK.RELEASE key {owner} ALL");
        }
        drop((self.b, self.c));
        self.server.await_gauge("blocked_clients", 0);
        for gauge in ["locks", "holders", "waiters", "marked", "held_back"] {
            assert_eq!(self.server.gauge(gauge), 0, "{gauge}");
        }
        assert_eq!(int(&cmd!(self.a, "DBSIZE")), 0);
    }
}

#[test]
fn a_waiter_killed_in_the_turn_of_its_grant_gives_the_lock_to_the_next() {
    let (multi, exec) = (command!("MULTI"), command!("EXEC"));
    for way in 0..3 {
        let mut scene = Scene::new();
        let (release, kill) = (scene.release(), scene.kill_b());
        let replies = match way {
            0 => scene.a.pipeline(&[release, kill]),
            1 => scene
                .a
                .pipeline(&[multi.clone(), release, kill, exec.clone()]),
            _ => scene.a.pipeline(&[kill, release]),
        };
        assert!(replies.iter().all(Result::is_ok), "{replies:?}");
        assert_error(scene.b.try_recv(), "connection closed");
        granted(&mut scene.c);
        assert_eq!(holders_of(&mut scene.a, "key"), ["c"]);
        scene.ends_free();
    }
}

#[test]
fn both_waiters_killed_behind_the_release_leave_the_lock_free() {
    let mut scene = Scene::new();
    let kill_c = command!("CLIENT", "KILL", "ID", scene.c.client_id());
    scene.a.pipeline(&[scene.release(), scene.kill_b(), kill_c]);
    eventually("the lock is free", || {
        lock_info(&mut scene.a, "key").is_none()
    });
    scene.ends_free();
}

#[test]
fn an_unblock_behind_the_grant_delivers_the_grant_once() {
    for how in ["TIMEOUT", "ERROR"] {
        let mut scene = Scene::new();
        let replies = scene.a.pipeline(&[scene.release(), scene.unblock_b(how)]);
        assert_eq!(replies[0], Ok(Value::Int(0)));
        // Either it gets the grant, or it gets the unblock and the grant is undone. The lock has to agree.
        let reply = scene.b.try_recv();
        assert_eq!(text(&cmd!(scene.b, "PING")), "PONG");
        match reply {
            Ok(Value::Int(token)) => {
                assert_eq!(hold_of(&mut scene.a, "key", "b").unwrap().token, token);
                assert_eq!(queue_of(&mut scene.a, "key"), ["c"]);
            }
            Err(error) if how == "ERROR" && error.starts_with("UNBLOCKED ") => {
                granted(&mut scene.c);
                assert_eq!(holders_of(&mut scene.a, "key"), ["c"]);
            }
            other => panic!("{how}: {other:?}"),
        }
        scene.ends_free();
    }
}

#[test]
fn an_unblock_and_a_kill_behind_the_grant_lose_nothing() {
    for how in ["TIMEOUT", "ERROR"] {
        let mut scene = Scene::new();
        let steps = [scene.release(), scene.unblock_b(how), scene.kill_b()];
        scene.a.pipeline(&steps);
        // b may have got the grant or not. If it did, it is the holder until its lease is over.
        eventually("an owner holds", || {
            let holders = holders_of(&mut scene.a, "key");
            if holders == ["b"] || holders == ["c"] {
                Ok(())
            } else {
                Err(holders)
            }
        });
        scene.ends_free();
    }
}

#[test]
fn an_unblock_before_the_release_removes_the_waiter() {
    let mut scene = Scene::new();
    let steps = [scene.unblock_b("TIMEOUT"), scene.release()];
    assert_eq!(scene.a.pipeline(&steps)[0], Ok(Value::Int(1)));
    assert!(is_nil(&scene.b.recv()));
    granted(&mut scene.c);
    scene.ends_free();
}

#[test]
fn a_grant_stays_if_its_owner_has_since_got_a_reply_on_another_connection() {
    for answered in [
        command!("LOCK.ACQUIRE key b 60000 HOLDS 1"),
        command!("LOCK.RENEW key b 60000"),
    ] {
        let mut scene = Scene::new();
        let steps = [scene.release(), scene.kill_b(), answered];
        let replies = scene.a.pipeline(&steps);
        let token = int(replies[2].as_ref().unwrap());
        assert_error(scene.b.try_recv(), "connection closed");
        let hold = hold_of(&mut scene.a, "key", "b").expect("b knows that it holds");
        assert_eq!((hold.token, hold.counts()), (token, (1, 0)));
        assert_eq!(queue_of(&mut scene.a, "key"), ["c"]);
        cmd!(scene.a, "LOCK.RELEASE key b");
        granted(&mut scene.c);
        scene.ends_free();
    }
}

#[test]
fn undoing_a_lost_grant_that_was_released_does_not_affect_the_next_holder() {
    let mut scene = Scene::new();
    let release_b = command!("LOCK.RELEASE key b");
    let steps = [scene.release(), scene.kill_b(), release_b];
    scene.a.pipeline(&steps);
    granted(&mut scene.c);
    assert_eq!(hold_of(&mut scene.a, "key", "c").unwrap().counts(), (1, 0));
    scene.ends_free();
}

#[test]
fn a_lost_retry_leaves_the_delivered_grant() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let mut first = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let retry = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let kill = command!("CLIENT", "KILL", "ID", retry.client_id());
    a.pipeline(&[command!("LOCK.RELEASE key a"), kill]);
    let token = granted(&mut first);
    // The first request may get its reply before the second one's grant is undone.
    eventually("b holds once", || {
        let hold = hold_of(&mut a, "key", "b").map(|hold| (hold.token, hold.counts()));
        if hold == Some((token, (1, 0))) {
            Ok(())
        } else {
            Err(hold)
        }
    });
}

#[test]
fn a_lost_first_request_leaves_the_retry_its_grant() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let ask = || command!("LOCK.ACQUIRE key b 60000 WAIT 0 HOLDS 1");
    let first = server.waiter(&ask());
    let mut retry = server.waiter(&ask());
    let kill = command!("CLIENT", "KILL", "ID", first.client_id());
    a.pipeline(&[command!("LOCK.RELEASE key a"), kill]);
    let token = granted(&mut retry);
    let hold = hold_of(&mut a, "key", "b").expect("b got its grant");
    assert_eq!((hold.token, hold.counts()), (token, (1, 0)));
}

#[test]
fn one_lost_reader_of_a_batch_leaves_the_others() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let mut waiting =
        ["r1", "r2", "r3"].map(|owner| waiter!(server, "LOCK.RLOCK key {owner} 60000 WAIT 0"));
    let kill = command!("CLIENT", "KILL", "ID", waiting[1].client_id());
    a.pipeline(&[command!("LOCK.RELEASE key a"), kill]);
    granted(&mut waiting[0]);
    granted(&mut waiting[2]);
    eventually("r2 is out", || holders_of(&mut a, "key") == ["r1", "r3"]);
}

#[test]
fn a_lost_grant_is_undone_whatever_happens_to_the_key_in_the_same_turn() {
    for change in [
        "DEL key",
        "FLUSHALL",
        "FLUSHDB",
        "SWAPDB 0 1",
        "RENAME key other",
        "MOVE key 1",
        "SET key text",
    ] {
        let mut scene = Scene::new();
        let steps = [scene.release(), scene.kill_b(), command!("{change}")];
        let replies = scene.a.pipeline(&steps);
        assert!(replies.iter().all(Result::is_ok), "{change}: {replies:?}");
        match scene.c.try_recv() {
            Ok(Value::Int(_)) => {}
            Err(_) if change.starts_with("SET ") => {}
            other => panic!("{change}: {other:?}"),
        }
    }
}

#[test]
fn a_lost_grant_moved_by_swapdb_is_undone_in_the_other_database() {
    let mut scene = Scene::new();
    scene.c = scene.server.connect();
    eventually("c has left", || queue_of(&mut scene.a, "key") == ["b"]);
    let swap = command!("SWAPDB 0 1");
    scene.a.pipeline(&[scene.release(), scene.kill_b(), swap]);
    assert_error(scene.b.try_recv(), "connection closed");
    cmd!(scene.a, "SELECT 1");
    eventually("the lock is free", || {
        lock_info(&mut scene.a, "key").is_none()
    });
    scene.ends_free();
}

#[test]
fn very_many_grants_that_one_owner_lost_at_once_are_all_undone() {
    const KEYS: usize = 1_000;
    let (server, mut a) = Server::builder().alone().start_connected();
    let keys: Vec<String> = (0..KEYS).map(|n| format!("key{n}")).collect();
    for key in &keys {
        cmd!(a, "LOCK.ACQUIRE {key} a 600000");
    }
    // Three grants for each key: a slice of the work often ends between two of them.
    let asking = keys
        .iter()
        .flat_map(|key| [0, 1, 2].map(|_| command!("LOCK.ACQUIRE {key} b 600000 WAIT 0")));
    let waiting = server.waiters(asking);
    let mut steps = vec![command!("MULTI")];
    steps.extend(keys.iter().map(|key| command!("LOCK.RELEASE {key} a")));
    steps.push(command!("CLIENT KILL TYPE normal"));
    steps.push(command!("EXEC"));
    a.pipeline(&steps);
    drop(waiting);
    server.await_gauge("blocked_clients", 0);
    server.await_gauge("marked", 0);
    assert_eq!(int(&cmd!(server.connect(), "DBSIZE")), 0, "still held");
}

#[test]
fn an_undone_grant_is_replicated() {
    let primary = Server::start();
    let replica = primary.start_replica();
    let mut a = primary.connect();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let b = waiter!(primary, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let mut c = waiter!(primary, "LOCK.ACQUIRE key c 60000 WAIT 0");
    let kill = command!("CLIENT", "KILL", "ID", b.client_id());
    a.pipeline(&[command!("LOCK.RELEASE key a"), kill]);
    granted(&mut c);
    wait_for_sync(&primary, &replica);
    let mut there = replica.connect();
    assert_eq!(
        lock_info(&mut there, "key").unwrap().facts(),
        lock_info(&mut a, "key").unwrap().facts()
    );
    let d = waiter!(primary, "LOCK.ACQUIRE key d 60000 WAIT 0");
    let kill = command!("CLIENT", "KILL", "ID", d.client_id());
    a.pipeline(&[command!("LOCK.RELEASE key c"), kill]);
    eventually("the lock is free", || lock_info(&mut a, "key").is_none());
    wait_for_sync(&primary, &replica);
    assert!(lock_info(&mut there, "key").is_none());
}
