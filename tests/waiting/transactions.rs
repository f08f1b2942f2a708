//! Waiters, and commands that run together: transactions, scripts, and commands sent in one write.

use mortise_harness::redis::Value;
use mortise_harness::{
    Conn, Server, array, assert_same_data, cmd, command, granted, holders_of, int, is_nil,
    queue_of, waiter,
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
        let primary = Server::start_alone();
        let replica = primary.start_replica();
        let mut a = primary.connect();
        let waiting = KEYS
            .map(|key| {
                cmd!(a, "LOCK.ACQUIRE {key} a 60000");
                waiter!(primary, "LOCK.ACQUIRE {key} b 60000 WAIT 0")
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
        for b in &mut self.waiting {
            granted(b);
        }
        assert_same_data(&self.primary, &self.replica);
        for mut conn in [self.primary.connect(), self.replica.connect()] {
            for key in KEYS {
                assert_eq!(holders_of(&mut conn, key), ["b"], "{key}");
            }
        }
    }
}

#[test]
fn a_transaction_that_releases_several_locks_lets_all_their_waiters_in() {
    let mut scene = Scene::new();
    cmd!(scene.a, "MULTI");
    for key in KEYS {
        cmd!(scene.a, "LOCK.RELEASE {key} a");
    }
    assert_eq!(array(&cmd!(scene.a, "EXEC")), [0, 0, 0].map(Value::Int));
    scene.all_are_in();
}

#[test]
fn a_script_that_releases_several_locks_lets_all_their_waiters_in() {
    let mut scene = Scene::new();
    let script = "for _, key in ipairs(KEYS) do redis.call('LOCK.RELEASE', key, ARGV[1]) end";
    cmd!(scene.a, "EVAL", script, 3, "k1", "k2", "k3", "a");
    scene.all_are_in();
}

#[test]
fn a_transaction_that_deletes_and_acquires_leaves_the_lock_to_the_waiter() {
    let mut scene = Scene::new();
    cmd!(scene.a, "MULTI");
    for key in KEYS {
        cmd!(scene.a, "DEL {key}");
        cmd!(scene.a, "LOCK.ACQUIRE {key} c 60000");
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
        let acquire = command!("LOCK.ACQUIRE {key} c 60000");
        let replies = scene.a.pipeline(&[command!("DEL {key}"), acquire]);
        assert_eq!(replies, [Ok(Value::Int(1)), Ok(Value::Nil)]);
    }
    scene.all_are_in();
}

#[test]
fn a_lock_released_and_requested_again_in_a_transaction_goes_to_the_waiter() {
    let mut scene = Scene::new();
    cmd!(scene.a, "MULTI");
    for key in KEYS {
        cmd!(scene.a, "LOCK.RELEASE {key} a");
        cmd!(scene.a, "LOCK.ACQUIRE {key} a 60000");
    }
    cmd!(scene.a, "EXEC");
    scene.all_are_in();
}

#[test]
fn a_chain_of_waiters_is_granted_by_one_write() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key w0 60000");
    let owners: Vec<String> = (1..=20).map(|n| format!("w{n}")).collect();
    let asking = owners
        .iter()
        .map(|owner| command!("LOCK.ACQUIRE key {owner} 60000 WAIT 0"));
    let mut waiting = server.waiters(asking);
    let steps: Vec<_> = (0..20).map(|n| command!("LOCK.RELEASE key w{n}")).collect();
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
fn a_watched_key_handed_over_fails_the_transaction() {
    let mut scene = Scene::new();
    let mut watcher = scene.primary.connect();
    cmd!(watcher, "WATCH k1");
    cmd!(watcher, "MULTI");
    cmd!(watcher, "PING");
    let releases = KEYS.map(|key| command!("LOCK.RELEASE {key} a"));
    scene.a.pipeline(&releases);
    assert!(is_nil(&cmd!(watcher, "EXEC")));
    scene.all_are_in();
}
