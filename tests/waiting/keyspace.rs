//! Commands that know nothing of locks change the key of waiters.

use mortise_harness::{
    Conn, Server, assert_error, assert_same_data, bytes, cmd, command, eventually, granted,
    hold_of, holders_of, int, is_nil, queue_of, text, wait_for_sync, waiter,
};

/// A primary with a replica. `a` holds `key` to write, and `b` waits for it.
struct Scene {
    primary: Server,
    replica: Server,
    a: Conn,
    b: Conn,
}

impl Scene {
    fn new() -> Scene {
        let primary = Server::start_alone();
        let replica = primary.start_replica();
        let mut a = primary.connect();
        cmd!(a, "LOCK.ACQUIRE key a 60000");
        let b = waiter!(primary, "LOCK.ACQUIRE key b 60000 WAIT 0 HOLDS 1");
        Scene {
            primary,
            replica,
            a,
            b,
        }
    }

    /// Checks that now only `b` holds, here and on the replica.
    #[track_caller]
    fn b_is_in(mut self) {
        let token = granted(&mut self.b);
        assert_eq!(holders_of(&mut self.a, "key"), ["b"]);
        let hold = hold_of(&mut self.a, "key", "b").unwrap();
        assert_eq!((hold.token, hold.counts()), (token, (1, 0)));
        self.ends();
    }

    /// Checks that `b` keeps waiting for another owner, and is granted when that one releases.
    #[track_caller]
    fn b_waits_for(mut self, owner: &str) {
        cmd!(self.a, "PING");
        assert_eq!(queue_of(&mut self.a, "key"), ["b"]);
        assert_eq!(holders_of(&mut self.a, "key"), [owner]);
        cmd!(self.a, "LOCK.RELEASE key {owner} ALL");
        granted(&mut self.b);
        assert_eq!(holders_of(&mut self.a, "key"), ["b"]);
        self.ends();
    }

    #[track_caller]
    fn ends(self) {
        assert_same_data(&self.primary, &self.replica);
        assert_eq!(self.primary.gauge("waiters"), 0);
        // A lease that has just ended is swept in a moment, which is replicated.
        eventually("both count the same holders", || {
            let (here, there) = (self.primary.gauge("holders"), self.replica.gauge("holders"));
            if here == there {
                Ok(())
            } else {
                Err((here, there))
            }
        });
    }
}

#[test]
fn a_key_that_goes_lets_the_next_in() {
    for change in [
        "DEL key",
        "DEL x key y",
        "UNLINK key",
        "PEXPIRE key 100",
        "EXPIRE key -1",
    ] {
        let mut scene = Scene::new();
        cmd!(scene.a, "MSET x 1 y 2");
        cmd!(scene.a, "{change}");
        scene.b_is_in();
    }
}

#[test]
fn a_ttl_whose_end_a_read_command_notices_lets_the_next_in() {
    let mut scene = Scene::new();
    cmd!(scene.a, "DEBUG SET-ACTIVE-EXPIRE 0");
    cmd!(scene.a, "PEXPIRE key 50");
    eventually("the key is gone", || {
        int(&cmd!(scene.a, "EXISTS key")) == 0 || queue_of(&mut scene.a, "key").is_empty()
    });
    scene.b_is_in();
}

#[test]
fn a_request_that_notices_the_end_of_a_ttl_does_not_overtake() {
    let mut scene = Scene::new();
    cmd!(scene.a, "DEBUG SET-ACTIVE-EXPIRE 0");
    cmd!(scene.a, "PEXPIRE key 50");
    eventually("b holds", || {
        assert!(is_nil(&cmd!(scene.a, "LOCK.ACQUIRE key c 60000")));
        scene.primary.gauge("waiters") == 0
    });
    scene.b_is_in();
}

#[test]
fn an_evicted_key_lets_the_next_in() {
    for policy in ["allkeys-random", "allkeys-lru", "allkeys-lfu"] {
        let mut scene = Scene::new();
        cmd!(scene.a, "CONFIG SET maxmemory-policy {policy}");
        let limit = |bytes: u32| command!("CONFIG", "SET", "maxmemory", bytes);
        // At the second command memory is over its limit, so the server evicts first.
        for reply in scene.a.pipeline(&[limit(1), limit(0)]) {
            reply.unwrap();
        }
        scene.b_is_in();
    }
}

#[test]
fn volatile_eviction_takes_no_lock() {
    let mut scene = Scene::new();
    cmd!(scene.a, "CONFIG SET maxmemory-policy volatile-lru");
    let limit = |bytes: u32| command!("CONFIG", "SET", "maxmemory", bytes);
    scene.a.pipeline(&[limit(1), limit(0)]);
    scene.b_waits_for("a");
}

#[test]
fn waiters_of_a_key_overwritten_by_another_type_get_wrongtype() {
    for change in [
        "SET key text",
        "SUNIONSTORE key set",
        "RENAME set key",
        "COPY set key REPLACE",
    ] {
        let mut scene = Scene::new();
        let mut c = waiter!(scene.primary, "LOCK.RLOCK key c 60000 WAIT 0");
        cmd!(scene.a, "SADD set member");
        cmd!(scene.a, "{change}");
        assert_error(c.try_recv(), "WRONGTYPE ");
        assert_error(scene.b.try_recv(), "WRONGTYPE ");
        scene.ends();
    }
}

#[test]
fn a_key_overwritten_and_deleted_in_one_turn_lets_the_next_in() {
    let mut scene = Scene::new();
    let steps = [command!("SET key text"), command!("DEL key")];
    scene.a.pipeline(&steps);
    scene.b_is_in();
}

#[test]
fn a_lock_renamed_away_lets_the_next_in() {
    let mut scene = Scene::new();
    cmd!(scene.a, "RENAME key other");
    granted(&mut scene.b);
    assert_eq!(holders_of(&mut scene.a, "key"), ["b"]);
    assert_eq!(holders_of(&mut scene.a, "other"), ["a"]);
    // Each server counts a renamed lock from the first command that names it.
    wait_for_sync(&scene.primary, &scene.replica);
    assert_eq!(holders_of(&mut scene.replica.connect(), "other"), ["a"]);
    scene.ends();
}

/// The ways in which the lock `other` comes to `key`, which is held.
const ARRIVALS: [fn(&mut Conn); 3] = [
    |conn| drop(cmd!(conn, "RENAME other key")),
    |conn| drop(cmd!(conn, "COPY other key REPLACE")),
    restore,
];

fn restore(conn: &mut Conn) {
    let payload = bytes(&cmd!(conn, "DUMP other"));
    cmd!(conn, "RESTORE", "key", 0, payload, "REPLACE");
}

#[test]
fn a_lock_that_comes_to_the_key_keeps_its_waiters_waiting_until_its_lease_is_over() {
    for arrive in ARRIVALS {
        for lease in [60_000, 300] {
            let mut scene = Scene::new();
            cmd!(scene.a, "LOCK.ACQUIRE other x {lease}");
            arrive(&mut scene.a);
            match lease {
                300 => scene.b_is_in(),
                _ => scene.b_waits_for("x"),
            }
        }
    }
}

#[test]
fn a_waiter_whose_own_lock_comes_to_the_key_re_enters() {
    for arrive in ARRIVALS {
        let mut scene = Scene::new();
        let token = int(&cmd!(scene.a, "LOCK.ACQUIRE other b 60000"));
        arrive(&mut scene.a);
        assert_eq!(hold_of(&mut scene.a, "key", "b").unwrap().token, token);
        scene.b_is_in();
    }
}

#[test]
fn a_write_request_becomes_an_upgrade_when_its_owner_comes_to_read() {
    let mut scene = Scene::new();
    let mut c = waiter!(scene.primary, "LOCK.RLOCK key c 60000 WAIT 0");
    for owner in ["b", "x"] {
        cmd!(scene.a, "LOCK.RLOCK other {owner} 60000");
    }
    restore(&mut scene.a);
    cmd!(scene.a, "PING");
    assert_eq!(queue_of(&mut scene.a, "key"), ["b", "c"]);
    cmd!(scene.a, "LOCK.RELEASE key x");
    granted(&mut scene.b);
    assert_eq!(hold_of(&mut scene.a, "key", "b").unwrap().counts(), (1, 1));
    cmd!(scene.a, "LOCK.RELEASE key b ALL");
    granted(&mut c);
    scene.ends();
}

#[test]
fn a_reload_of_all_data_keeps_the_waiters_and_the_lease_they_wait_for() {
    let mut scene = Scene::new();
    cmd!(scene.a, "DEBUG RELOAD");
    assert_eq!(text(&cmd!(scene.a, "PING")), "PONG");
    scene.b_waits_for("a");
    let mut scene = Scene::new();
    cmd!(scene.a, "LOCK.ACQUIRE short a 1500");
    let mut c = waiter!(scene.primary, "LOCK.ACQUIRE short c 60000 WAIT 0");
    cmd!(scene.a, "DEBUG RELOAD");
    granted(&mut c);
    scene.b_waits_for("a");
}

#[test]
fn a_reload_that_loses_the_lock_lets_the_next_in() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "SAVE");
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    cmd!(a, "DEBUG RELOAD NOSAVE");
    granted(&mut b);
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
    assert_eq!(server.gauge("holders"), 1);
}
