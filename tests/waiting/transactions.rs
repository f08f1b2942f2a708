//! Waiters, and commands that run together: transactions, scripts, and commands sent in one write.

use mortise_harness::redis::Value;
use mortise_harness::{
    Conn, Server, array, assert_same_data, cmd, command, granted, holders_of, int, is_nil,
    queue_of, wait_for_sync, waiter,
};

/// A primary with a replica, `a` holding the keys, and `b` waiting for each of them.
struct Scene {
    primary: Server,
    replica: Server,
    a: Conn,
    waiting: Vec<Conn>,
}

const KEYS: [&str; 3] = ["k1", "k2", "k3"];

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
        let waiting = KEYS
            .map(|key| {
                cmd!(a, "LOCK.ACQUIRE", key, "a", 60_000);
                waiter!(primary, "LOCK.ACQUIRE", key, "b", 60_000, "WAIT", 0)
            })
            .into();
        Scene {
            primary,
            replica,
            a,
            waiting,
        }
    }

    /// Checks that every waiter has been granted, here and on the replica.
    #[track_caller]
    fn all_are_in(mut self) {
        self.waiting.iter_mut().for_each(|b| {
            granted(b);
        });
        for key in KEYS {
            assert_eq!(holders_of(&mut self.a, key), ["b"], "{key}");
        }
        assert_same_data(&self.primary, &self.replica);
        let mut there = self.replica.connect();
        for key in KEYS {
            assert_eq!(holders_of(&mut there, key), ["b"], "{key}");
        }
    }
}

#[test]
fn a_transaction_that_releases_several_locks_lets_all_their_waiters_in() {
    let mut scene = Scene::alone();
    cmd!(scene.a, "MULTI");
    for key in KEYS {
        cmd!(scene.a, "LOCK.RELEASE", key, "a");
    }
    assert_eq!(array(&cmd!(scene.a, "EXEC")), [0, 0, 0].map(Value::Int));
    scene.all_are_in();
}

#[test]
fn a_script_that_releases_several_locks_lets_all_their_waiters_in() {
    let mut scene = Scene::alone();
    let script = "for _, key in ipairs(KEYS) do redis.call('LOCK.RELEASE', key, ARGV[1]) end";
    cmd!(scene.a, "EVAL", script, 3, "k1", "k2", "k3", "a");
    scene.all_are_in();
}

#[test]
fn a_script_that_deletes_several_locks_lets_all_their_waiters_in() {
    let mut scene = Scene::alone();
    let script = "return redis.call('DEL', unpack(KEYS))";
    assert_eq!(int(&cmd!(scene.a, "EVAL", script, 3, "k1", "k2", "k3")), 3);
    scene.all_are_in();
}

#[test]
fn a_transaction_that_deletes_and_acquires_leaves_the_lock_to_the_waiter() {
    let mut scene = Scene::alone();
    cmd!(scene.a, "MULTI");
    for key in KEYS {
        cmd!(scene.a, "DEL", key);
        cmd!(scene.a, "LOCK.ACQUIRE", key, "c", 60_000);
    }
    let replies = cmd!(scene.a, "EXEC");
    let acquires = array(&replies).iter().skip(1).step_by(2);
    assert!(acquires.clone().all(is_nil), "{replies:?}");
    scene.all_are_in();
}

#[test]
fn a_script_that_deletes_and_acquires_leaves_the_lock_to_the_waiter() {
    let mut scene = Scene::new();
    let script =
        "redis.call('DEL', KEYS[1]) return redis.call('LOCK.ACQUIRE', KEYS[1], 'c', 60000)";
    for key in KEYS {
        assert!(is_nil(&cmd!(scene.a, "EVAL", script, 1, key)));
    }
    scene.all_are_in();
}

#[test]
fn an_acquire_in_one_write_with_a_deletion_does_not_overtake_the_waiter() {
    let mut scene = Scene::new();
    for key in KEYS {
        let steps = [
            command!("DEL", key),
            command!("LOCK.ACQUIRE", key, "c", 60_000),
        ];
        assert_eq!(
            scene.a.pipeline(&steps),
            [Ok(Value::Int(1)), Ok(Value::Nil)]
        );
    }
    scene.all_are_in();
}

#[test]
fn an_acquire_in_one_write_with_flushall_does_not_overtake_the_waiter() {
    let mut scene = Scene::new();
    let mut steps = vec![command!("FLUSHALL")];
    steps.extend(KEYS.map(|key| command!("LOCK.ACQUIRE", key, "c", 60_000)));
    let replies = scene.a.pipeline(&steps);
    assert!(
        replies[1..].iter().all(|reply| *reply == Ok(Value::Nil)),
        "{replies:?}"
    );
    scene.all_are_in();
}

#[test]
fn releases_in_one_write_let_all_the_waiters_in() {
    let mut scene = Scene::new();
    scene
        .a
        .pipeline(&KEYS.map(|key| command!("LOCK.RELEASE", key, "a")));
    scene.all_are_in();
}

#[test]
fn a_lock_released_and_requested_again_in_a_transaction_goes_to_the_waiter() {
    let mut scene = Scene::alone();
    cmd!(scene.a, "MULTI");
    for key in KEYS {
        cmd!(scene.a, "LOCK.RELEASE", key, "a");
        cmd!(scene.a, "LOCK.ACQUIRE", key, "a", 60_000);
    }
    cmd!(scene.a, "EXEC");
    scene.all_are_in();
}

#[test]
fn a_chain_of_waiters_is_granted_by_one_write() {
    let server = Server::start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "key", "w0", 60_000);
    let owners: Vec<String> = (1..=20).map(|n| format!("w{n}")).collect();
    let asking = owners
        .iter()
        .map(|owner| command!("LOCK.ACQUIRE", "key", owner, 60_000, "WAIT", 0));
    let mut waiting = server.waiters(asking);
    let steps: Vec<_> = (0..20)
        .map(|n| command!("LOCK.RELEASE", "key", format!("w{n}")))
        .collect();
    let replies = a.pipeline(&steps);
    assert!(
        replies.iter().all(|reply| *reply == Ok(Value::Int(0))),
        "{replies:?}"
    );
    let tokens: Vec<i64> = waiting.iter_mut().map(granted).collect();
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    assert_eq!(holders_of(&mut a, "key"), ["w20"]);
}

#[test]
fn wait_is_ignored_where_nothing_can_block() {
    let server = Server::start_alone();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
    cmd!(a, "MULTI");
    cmd!(a, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
    cmd!(a, "LOCK.ACQUIRE", "free", "b", 60_000, "WAIT", 0);
    let replies = cmd!(a, "EXEC");
    assert!(is_nil(&array(&replies)[0]), "{replies:?}");
    int(&array(&replies)[1]);
    let script = "return redis.call('LOCK.RLOCK', KEYS[1], 'b', 60000, 'WAIT', 0)";
    assert!(is_nil(&cmd!(a, "EVAL", script, 1, "key")));
    assert!(queue_of(&mut a, "key").is_empty());
    assert_eq!(server.gauge("blocked_clients"), 0);
}

#[test]
fn a_watched_key_handed_over_fails_the_transaction() {
    let mut scene = Scene::new();
    let mut watcher = scene.primary.connect();
    cmd!(watcher, "WATCH", "k1");
    cmd!(watcher, "MULTI");
    cmd!(watcher, "PING");
    scene
        .a
        .pipeline(&KEYS.map(|key| command!("LOCK.RELEASE", key, "a")));
    assert!(is_nil(&cmd!(watcher, "EXEC")));
    scene.all_are_in();
}
