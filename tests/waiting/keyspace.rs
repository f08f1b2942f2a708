//! Commands that know nothing of locks change the key of waiters.

use mortise_harness::redis::Cmd;
use mortise_harness::{
    Conn, Server, assert_same_data, bytes, cmd, command, eventually, granted, hold_of, holders_of,
    int, is_nil, queue_of, text, wait_for_sync, waiter,
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
        Scene::of(Server::start())
    }

    /// The same, on a server that is no cluster node.
    fn alone() -> Scene {
        Scene::of(Server::start_alone())
    }

    fn of(primary: Server) -> Scene {
        let replica = Server::builder().replica_of(&primary).start();
        wait_for_sync(&primary, &replica);
        let mut a = primary.connect();
        cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
        let b = waiter!(primary, "LOCK.ACQUIRE key b 60000 WAIT 0 HOLDS 1");
        Scene {
            primary,
            replica,
            a,
            b,
        }
    }

    /// Checks that after `change` only `b` holds, here and on the replica.
    #[track_caller]
    fn b_gets_in_by(mut self, change: &Cmd) {
        self.a.run(change);
        self.b_is_in();
    }

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
        cmd!(self.a, "LOCK.RELEASE", "key", owner, "ALL");
        granted(&mut self.b);
        assert_eq!(holders_of(&mut self.a, "key"), ["b"]);
        self.ends();
    }

    #[track_caller]
    fn b_gets_wrongtype(mut self) {
        let error = self.b.try_recv().unwrap_err();
        assert!(error.starts_with("WRONGTYPE "), "{error}");
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
fn a_deleted_key_lets_the_next_in() {
    Scene::new().b_gets_in_by(&command!("DEL", "key"));
}

#[test]
fn an_unlinked_key_lets_the_next_in() {
    Scene::new().b_gets_in_by(&command!("UNLINK", "key"));
}

#[test]
fn a_key_deleted_with_others_lets_the_next_in() {
    let mut scene = Scene::alone();
    cmd!(scene.a, "MSET", "x", 1, "y", 2);
    scene.b_gets_in_by(&command!("DEL", "x", "key", "y"));
}

#[test]
fn a_ttl_that_ends_lets_the_next_in() {
    Scene::new().b_gets_in_by(&command!("PEXPIRE", "key", 100));
}

#[test]
fn a_time_to_live_in_the_past_lets_the_next_in() {
    Scene::new().b_gets_in_by(&command!("EXPIRE", "key", -1));
}

#[test]
fn a_ttl_whose_end_a_read_command_notices_lets_the_next_in() {
    let mut scene = Scene::new();
    cmd!(scene.a, "DEBUG", "SET-ACTIVE-EXPIRE", 0);
    cmd!(scene.a, "PEXPIRE", "key", 50);
    eventually("the key is gone", || {
        int(&cmd!(scene.a, "EXISTS", "key")) == 0 || queue_of(&mut scene.a, "key").is_empty()
    });
    scene.b_is_in();
}

#[test]
fn a_request_that_notices_the_end_of_a_ttl_does_not_overtake() {
    let mut scene = Scene::new();
    cmd!(scene.a, "DEBUG", "SET-ACTIVE-EXPIRE", 0);
    cmd!(scene.a, "PEXPIRE", "key", 50);
    eventually("b holds", || {
        assert!(is_nil(&cmd!(scene.a, "LOCK.ACQUIRE", "key", "c", 60_000)));
        scene.primary.gauge("waiters") == 0
    });
    scene.b_is_in();
}

#[test]
fn an_evicted_key_lets_the_next_in() {
    for policy in ["allkeys-random", "allkeys-lru", "allkeys-lfu"] {
        let mut scene = Scene::new();
        cmd!(scene.a, "CONFIG", "SET", "maxmemory-policy", policy);
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
    cmd!(scene.a, "CONFIG", "SET", "maxmemory-policy", "volatile-lru");
    let limit = |bytes: u32| command!("CONFIG", "SET", "maxmemory", bytes);
    scene.a.pipeline(&[limit(1), limit(0)]);
    scene.b_waits_for("a");
}

#[test]
fn waiters_of_a_key_overwritten_by_another_type_get_wrongtype() {
    for change in [
        command!("SET", "key", "text"),
        command!("SUNIONSTORE", "key", "set"),
        command!("RENAME", "set", "key"),
        command!("COPY", "set", "key", "REPLACE"),
    ] {
        let mut scene = Scene::alone();
        cmd!(scene.a, "SADD", "set", "member");
        scene.a.run(&change);
        scene.b_gets_wrongtype();
    }
}

#[test]
fn every_waiter_of_an_overwritten_key_is_refused() {
    let mut scene = Scene::new();
    let mut c = waiter!(scene.primary, "LOCK.RLOCK", "key", "c", 60_000, "WAIT", 0);
    cmd!(scene.a, "SET", "key", "text");
    assert!(c.try_recv().unwrap_err().starts_with("WRONGTYPE "));
    scene.b_gets_wrongtype();
}

#[test]
fn a_key_overwritten_and_deleted_in_one_turn_lets_the_next_in() {
    let mut scene = Scene::new();
    let steps = [command!("SET", "key", "text"), command!("DEL", "key")];
    scene.a.pipeline(&steps);
    scene.b_is_in();
}

#[test]
fn a_lock_renamed_away_lets_the_next_in() {
    let mut scene = Scene::alone();
    cmd!(scene.a, "RENAME", "key", "other");
    granted(&mut scene.b);
    assert_eq!(holders_of(&mut scene.a, "key"), ["b"]);
    assert_eq!(holders_of(&mut scene.a, "other"), ["a"]);
    // Each server counts a renamed lock from the first command that names it.
    wait_for_sync(&scene.primary, &scene.replica);
    assert_eq!(holders_of(&mut scene.replica.connect(), "other"), ["a"]);
    scene.ends();
}

#[test]
fn a_lock_renamed_onto_the_key_keeps_its_waiters_waiting() {
    let mut scene = Scene::alone();
    cmd!(scene.a, "LOCK.ACQUIRE", "other", "x", 60_000);
    cmd!(scene.a, "RENAME", "other", "key");
    scene.b_waits_for("x");
}

#[test]
fn a_lock_renamed_onto_the_key_lets_its_waiters_in_when_its_lease_is_over() {
    let mut scene = Scene::alone();
    cmd!(scene.a, "LOCK.ACQUIRE", "other", "x", 300);
    cmd!(scene.a, "RENAME", "other", "key");
    scene.b_is_in();
}

#[test]
fn a_read_lock_renamed_onto_the_key_lets_the_readers_at_its_head_in() {
    let primary = Server::start_alone();
    let mut a = primary.connect();
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
    cmd!(a, "LOCK.RLOCK", "other", "x", 60_000);
    let mut r = waiter!(primary, "LOCK.RLOCK", "key", "r", 60_000, "WAIT", 0);
    let _w = waiter!(primary, "LOCK.WLOCK", "key", "w", 60_000, "WAIT", 0);
    cmd!(a, "RENAME", "other", "key");
    granted(&mut r);
    assert_eq!(holders_of(&mut a, "key"), ["r", "x"]);
    assert_eq!(queue_of(&mut a, "key"), ["w"]);
}

#[test]
fn a_waiter_whose_own_lock_is_renamed_onto_the_key_re_enters() {
    let mut scene = Scene::alone();
    let token = int(&cmd!(scene.a, "LOCK.ACQUIRE", "other", "b", 60_000));
    cmd!(scene.a, "RENAME", "other", "key");
    assert_eq!(granted(&mut scene.b), token);
    assert_eq!(hold_of(&mut scene.a, "key", "b").unwrap().counts(), (1, 0));
    scene.ends();
}

#[test]
fn a_lock_copied_over_the_key_keeps_its_waiters_waiting() {
    let mut scene = Scene::alone();
    cmd!(scene.a, "LOCK.ACQUIRE", "other", "x", 60_000);
    cmd!(scene.a, "COPY", "other", "key", "REPLACE");
    assert_eq!(holders_of(&mut scene.a, "other"), ["x"]);
    scene.b_waits_for("x");
}

#[test]
fn a_lock_copied_over_the_key_lets_its_waiters_in_when_its_lease_is_over() {
    let mut scene = Scene::alone();
    cmd!(scene.a, "LOCK.ACQUIRE", "other", "x", 300);
    cmd!(scene.a, "COPY", "other", "key", "REPLACE");
    scene.b_is_in();
}

/// The payload of a lock that `owner` holds in `mode`.
fn dump(conn: &mut Conn, mode: &str, owners: &[&str], lease: u64) -> Vec<u8> {
    for owner in owners {
        int(&cmd!(conn, mode, "dumped", owner, lease));
    }
    let payload = bytes(&cmd!(conn, "DUMP", "dumped"));
    cmd!(conn, "DEL", "dumped");
    payload
}

#[test]
fn a_lock_of_another_owner_restored_over_the_key_keeps_its_waiters_waiting() {
    let mut scene = Scene::new();
    let payload = dump(&mut scene.a, "LOCK.WLOCK", &["x"], 60_000);
    cmd!(scene.a, "RESTORE", "key", 0, payload, "REPLACE");
    scene.b_waits_for("x");
}

#[test]
fn a_lock_restored_over_the_key_lets_its_waiters_in_when_its_lease_is_over() {
    let mut scene = Scene::new();
    let payload = dump(&mut scene.a, "LOCK.WLOCK", &["x"], 300);
    cmd!(scene.a, "RESTORE", "key", 0, payload, "REPLACE");
    scene.b_is_in();
}

#[test]
fn a_waiter_whose_own_lock_is_restored_over_the_key_re_enters() {
    let mut scene = Scene::new();
    let payload = dump(&mut scene.a, "LOCK.WLOCK", &["b"], 60_000);
    cmd!(scene.a, "RESTORE", "key", 0, payload, "REPLACE");
    scene.b_is_in();
}

#[test]
fn a_write_request_becomes_an_upgrade_when_its_owner_comes_to_read() {
    let mut scene = Scene::new();
    let mut c = waiter!(scene.primary, "LOCK.RLOCK", "key", "c", 60_000, "WAIT", 0);
    let payload = dump(&mut scene.a, "LOCK.RLOCK", &["b", "x"], 60_000);
    cmd!(scene.a, "RESTORE", "key", 0, payload, "REPLACE");
    cmd!(scene.a, "PING");
    assert_eq!(queue_of(&mut scene.a, "key"), ["b", "c"]);
    cmd!(scene.a, "LOCK.RELEASE", "key", "x");
    granted(&mut scene.b);
    assert_eq!(hold_of(&mut scene.a, "key", "b").unwrap().counts(), (1, 1));
    cmd!(scene.a, "LOCK.RELEASE", "key", "b", "ALL");
    granted(&mut c);
    scene.ends();
}

#[test]
fn a_reload_of_all_data_keeps_the_waiters_and_the_lease_they_wait_for() {
    let mut scene = Scene::new();
    cmd!(scene.a, "DEBUG", "RELOAD");
    assert_eq!(text(&cmd!(scene.a, "PING")), "PONG");
    scene.b_waits_for("a");
    let mut scene = Scene::new();
    cmd!(scene.a, "LOCK.ACQUIRE", "short", "a", 1_500);
    let mut c = waiter!(scene.primary, "LOCK.ACQUIRE short c 60000 WAIT 0");
    cmd!(scene.a, "DEBUG", "RELOAD");
    granted(&mut c);
    scene.b_waits_for("a");
}

#[test]
fn a_reload_that_loses_the_lock_lets_the_next_in() {
    let server = Server::start();
    let mut a = server.connect();
    cmd!(a, "SAVE");
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
    let mut b = waiter!(server, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
    cmd!(a, "DEBUG", "RELOAD", "NOSAVE");
    granted(&mut b);
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
    assert_eq!(server.gauge("holders"), 1);
}
