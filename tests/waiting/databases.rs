//! Databases are flushed or swapped, and locks change databases. Waiters stay where they are.

use mortise_harness::{
    Conn, Server, assert_same_data, cmd, command, eventually, granted, holders_of, int, queue_of,
    wait_for_sync,
};

/// A primary with a replica, and a connection that may select any database.
struct Scene {
    primary: Server,
    replica: Server,
    conn: Conn,
}

impl Scene {
    fn new() -> Scene {
        let primary = Server::start_alone();
        let replica = primary.start_replica();
        let conn = primary.connect();
        Scene {
            primary,
            replica,
            conn,
        }
    }

    /// `owner` acquires `key` of database `db` to write.
    fn hold(&mut self, db: u32, owner: &str) {
        cmd!(self.conn, "SELECT {db}");
        int(&cmd!(self.conn, "LOCK.ACQUIRE key {owner} 60000"));
    }

    /// `owner` waits for `key` of database `db` to write.
    fn wait(&mut self, db: u32, owner: &str) -> Conn {
        let mut conn = self.primary.connect();
        cmd!(conn, "SELECT {db}");
        conn.submit(&command!("LOCK.ACQUIRE key {owner} 60000 WAIT 0"));
        self.primary.await_blocked(&conn);
        conn
    }

    /// `owner` alone holds `key` of database `db`, and `queue` waits.
    #[track_caller]
    fn holds(&mut self, db: u32, owner: &str, queue: &[&str]) {
        cmd!(self.conn, "SELECT {db}");
        assert_eq!(holders_of(&mut self.conn, "key"), [owner]);
        assert_eq!(queue_of(&mut self.conn, "key"), queue);
    }

    fn release(&mut self, db: u32, owner: &str) {
        cmd!(self.conn, "SELECT {db}");
        assert_eq!(int(&cmd!(self.conn, "LOCK.RELEASE key {owner}")), 0);
    }

    #[track_caller]
    fn ends(self) {
        assert_same_data(&self.primary, &self.replica);
        for gauge in ["locks", "holders"] {
            assert_eq!(
                self.primary.gauge(gauge),
                self.replica.gauge(gauge),
                "{gauge}"
            );
        }
        assert_eq!(self.primary.gauge("waiters"), 0);
    }
}

#[test]
fn a_lock_moved_to_another_database_lets_the_next_in() {
    let mut scene = Scene::new();
    scene.hold(0, "a");
    let mut b = scene.wait(0, "b");
    cmd!(scene.conn, "SELECT 0");
    assert_eq!(int(&cmd!(scene.conn, "MOVE key 1")), 1);
    granted(&mut b);
    scene.holds(0, "b", &[]);
    scene.holds(1, "a", &[]);
    // Each server counts a moved lock from the first command that names it.
    wait_for_sync(&scene.primary, &scene.replica);
    let mut replica = scene.replica.connect();
    cmd!(replica, "SELECT 1");
    assert_eq!(holders_of(&mut replica, "key"), ["a"]);
    scene.ends();
}

#[test]
fn flushdb_lets_the_waiters_of_its_database_in_and_no_others() {
    for how in ["SYNC", "ASYNC"] {
        let mut scene = Scene::new();
        scene.hold(0, "a");
        scene.hold(1, "a");
        let (mut b, mut c) = (scene.wait(0, "b"), scene.wait(1, "c"));
        cmd!(scene.conn, "SELECT 0");
        cmd!(scene.conn, "FLUSHDB {how}");
        granted(&mut b);
        scene.holds(0, "b", &[]);
        scene.holds(1, "a", &["c"]);
        scene.release(1, "a");
        granted(&mut c);
        scene.ends();
    }
}

#[test]
fn flushall_lets_the_waiters_of_every_database_in() {
    for how in ["SYNC", "ASYNC"] {
        let mut scene = Scene::new();
        let mut waiting = Vec::new();
        for db in [0, 1, 9] {
            scene.hold(db, "a");
            waiting.push(scene.wait(db, "b"));
        }
        cmd!(scene.conn, "FLUSHALL {how}");
        for (mut b, db) in waiting.into_iter().zip([0, 1, 9]) {
            granted(&mut b);
            scene.holds(db, "b", &[]);
        }
        scene.ends();
    }
}

#[test]
fn swapdb_moves_the_locks_and_leaves_the_waiters() {
    let mut scene = Scene::new();
    scene.hold(0, "a");
    scene.hold(1, "x");
    let (mut b, mut c) = (scene.wait(0, "b"), scene.wait(1, "c"));
    cmd!(scene.conn, "SWAPDB 0 1");
    scene.holds(0, "x", &["b"]);
    scene.holds(1, "a", &["c"]);
    scene.release(0, "x");
    granted(&mut b);
    scene.holds(1, "a", &["c"]);
    scene.release(1, "a");
    granted(&mut c);
    scene.ends();
}

#[test]
fn swapdb_with_an_empty_database_lets_the_waiters_in_at_once() {
    for swap in [command!("SWAPDB 0 1"), command!("SWAPDB 1 0")] {
        let mut scene = Scene::new();
        scene.hold(0, "a");
        let mut b = scene.wait(0, "b");
        scene.conn.run(&swap);
        // Within the turn: a timer that looks at free keys would come some time later.
        scene.holds(0, "b", &[]);
        scene.holds(1, "a", &[]);
        granted(&mut b);
        scene.ends();
    }
}

#[test]
fn leases_brought_by_swapdb_let_the_waiters_in_at_their_end() {
    let mut scene = Scene::new();
    scene.hold(0, "a");
    cmd!(scene.conn, "SELECT 1");
    cmd!(scene.conn, "LOCK.ACQUIRE key x 300");
    let mut b = scene.wait(0, "b");
    cmd!(scene.conn, "SWAPDB 0 1");
    granted(&mut b);
    scene.holds(0, "b", &[]);
    scene.holds(1, "a", &[]);
    scene.ends();
}

#[test]
fn a_waiter_whose_own_lock_comes_by_swapdb_re_enters() {
    let mut scene = Scene::new();
    scene.hold(0, "a");
    scene.hold(1, "b");
    let mut b = scene.wait(0, "b");
    cmd!(scene.conn, "SWAPDB 0 1");
    granted(&mut b);
    scene.holds(0, "b", &[]);
    scene.ends();
}

#[test]
fn a_lock_that_leaves_and_comes_back_in_one_turn_keeps_its_waiters() {
    for steps in [
        &["MOVE key 1", "SELECT 1", "MOVE key 0"][..],
        &["SWAPDB 0 1", "SWAPDB 0 1"],
    ] {
        let mut scene = Scene::new();
        scene.hold(0, "a");
        let mut b = scene.wait(0, "b");
        cmd!(scene.conn, "SELECT 0");
        cmd!(scene.conn, "MULTI");
        for step in steps {
            cmd!(scene.conn, "{step}");
        }
        cmd!(scene.conn, "EXEC");
        scene.holds(0, "a", &["b"]);
        scene.release(0, "a");
        granted(&mut b);
        scene.ends();
    }
}

#[test]
fn a_deletion_and_a_swap_in_one_turn_let_everybody_in() {
    let mut scene = Scene::new();
    scene.hold(0, "a");
    scene.hold(1, "x");
    let (mut b, mut c) = (scene.wait(0, "b"), scene.wait(1, "c"));
    cmd!(scene.conn, "SELECT 0");
    scene
        .conn
        .pipeline(&[command!("DEL key"), command!("SWAPDB 0 1")]);
    // Now database 0 has x's lock, and database 1 none; or b was granted before the swap, and its lock has moved.
    granted(&mut c);
    eventually("b waits for x", || {
        cmd!(scene.conn, "SELECT 0");
        holders_of(&mut scene.conn, "key") == ["x"]
    });
    scene.release(0, "x");
    granted(&mut b);
    scene.ends();
}
