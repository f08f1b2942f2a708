//! Waiters, and commands that run together: transactions, scripts, and commands sent in one write.

use mortise_harness::redis::Value;
use mortise_harness::{
    Conn, Server, array, assert_same_data, cmd, command, command_of, granted, holders_of, is_nil,
    waiter,
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

/// Sends `steps` for each key, all of them in one transaction, and returns the replies.
fn in_a_transaction(conn: &mut Conn, steps: &[&str]) -> Vec<Value> {
    cmd!(conn, "MULTI");
    for key in KEYS {
        for step in steps {
            conn.run(&command_of(&step.replace('?', key)));
        }
    }
    array(&cmd!(conn, "EXEC")).to_vec()
}

#[test]
fn releases_in_a_transaction_or_a_script_let_all_waiters_in() {
    let mut scene = Scene::new();
    let replies = in_a_transaction(&mut scene.a, &["LOCK.RELEASE ? a"]);
    assert_eq!(replies, [0, 0, 0].map(Value::Int));
    scene.all_are_in();

    let mut scene = Scene::new();
    let script = "for _, key in ipairs(KEYS) do redis.call('LOCK.RELEASE', key, ARGV[1]) end";
    cmd!(scene.a, "EVAL", script, 3, &KEYS, "a");
    scene.all_are_in();
}

#[test]
fn a_request_that_runs_together_with_the_loss_of_the_lock_does_not_overtake_the_waiter() {
    let mut scene = Scene::new();
    for lost in ["DEL ?", "LOCK.RELEASE ? a"] {
        let steps = [lost, "LOCK.ACQUIRE ? c 60000"];
        let replies = in_a_transaction(&mut scene.a, &steps);
        assert!(replies.iter().skip(1).step_by(2).all(is_nil), "{replies:?}");
        scene.all_are_in();
        scene = Scene::new();
    }
    let script =
        "redis.call('DEL', KEYS[1]) return redis.call('LOCK.ACQUIRE', KEYS[1], 'c', 60000)";
    for key in KEYS {
        assert!(is_nil(&cmd!(scene.a, "EVAL", script, 1, key)));
    }
    scene.all_are_in();

    let mut scene = Scene::new();
    for key in KEYS {
        let acquire = command!("LOCK.ACQUIRE {key} c 60000");
        let replies = scene.a.pipeline(&[command!("DEL {key}"), acquire]);
        assert_eq!(replies, [Ok(Value::Int(1)), Ok(Value::Nil)]);
    }
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
