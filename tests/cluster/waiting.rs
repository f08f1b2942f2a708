//! Cluster: the module handles waiters of slots that move without visiting every key with waiters.

use std::time::Duration;

use mortise_harness::redis::Cmd;
use mortise_harness::{
    Cluster, Conn, Server, asking, begin_migration, cmd, command, end_migration, eventually,
    granted, int, node_id, send, try_cmd,
};

/// Waits until the module has asked five times which slots are here.
#[track_caller]
fn await_looks(server: &Server) {
    let before = server.calls("cluster|nodes");
    eventually("the module has checked the slots", || {
        server.calls("cluster|nodes") >= before + 5
    });
}

/// A connection that waits at a key whose slot is migrating to `server`.
#[track_caller]
fn asking_waiter(server: &Server, request: &Cmd) -> Conn {
    let mut conn = server.connect();
    cmd!(conn, "ASKING");
    conn.submit(request);
    server.await_blocked(&conn);
    conn
}

#[track_caller]
fn assert_unblocked(waiter: &mut Conn) {
    let error = waiter.try_recv().expect_err("sent away");
    assert!(error.starts_with("UNBLOCKED "), "{error}");
}

/// A cluster where `key`'s slot is migrating from the first node to the second, and `a` holds `key` at the second.
struct Import {
    cluster: Cluster,
    from: usize,
    slot: u16,
}

impl Import {
    fn new(lease: u64) -> Import {
        let cluster = Cluster::start(2, Server::builder);
        let (from, slot) = (cluster.home_of("key"), cluster.slot_of("key"));
        let import = Import {
            cluster,
            from,
            slot,
        };
        begin_migration(slot, import.from(), import.to());
        let acquire = command!("LOCK.ACQUIRE", "key", "a", lease);
        let token = asking(&mut import.to().connect(), &acquire);
        int(&token.expect("nobody holds"));
        import
    }

    fn from(&self) -> &Server {
        &self.cluster.primaries[self.from]
    }

    fn to(&self) -> &Server {
        &self.cluster.primaries[1 - self.from]
    }

    fn waiter(&self, owner: &str) -> Conn {
        let request = command!("LOCK.ACQUIRE", "key", owner, 60_000, "WAIT", 0);
        asking_waiter(self.to(), &request)
    }
}

#[test]
fn a_waiter_redirected_by_ask_waits_until_the_slot_has_arrived() {
    let import = Import::new(60_000);
    let mut b = import.waiter("b");
    await_looks(import.to());
    assert!(b.recv_within(Duration::ZERO).is_none());
    end_migration(import.slot, import.from(), import.to());
    await_looks(import.to());
    cmd!(import.to().connect(), "LOCK.RELEASE", "key", "a");
    granted(&mut b);
}

#[test]
fn a_waiter_redirected_by_ask_is_granted_a_lock_released_during_the_migration() {
    let import = Import::new(60_000);
    let mut b = import.waiter("b");
    let mut c = import.waiter("c");
    let release = command!("LOCK.RELEASE", "key", "a");
    asking(&mut import.to().connect(), &release).expect("a holds");
    granted(&mut b);
    // A waiter that leaves the queue changes nothing for the others.
    let d = import.waiter("d");
    drop(d);
    await_looks(import.to());
    assert!(c.recv_within(Duration::ZERO).is_none());
    end_migration(import.slot, import.from(), import.to());
    cmd!(import.to().connect(), "LOCK.RELEASE", "key", "b");
    granted(&mut c);
}

#[test]
fn a_lease_that_ends_before_the_slot_has_arrived_redirects_its_waiters() {
    let import = Import::new(300);
    let mut b = import.waiter("b");
    assert_unblocked(&mut b);
    let again = command!("LOCK.ACQUIRE", "key", "b", 60_000);
    let token = asking(&mut import.to().connect(), &again);
    int(&token.expect("nobody holds"));
}

#[test]
fn a_waiter_of_a_slot_that_never_arrives_is_unblocked() {
    let import = Import::new(60_000);
    let mut b = import.waiter("b");
    await_looks(import.to());
    let mut conn = import.to().connect();
    cmd!(conn, "CLUSTER", "SETSLOT", import.slot, "STABLE");
    assert_unblocked(&mut b);
}

/// Makes a request by mail at each of `count` keys that `a` holds.
fn queue_at_keys(server: &Server, count: usize, name: impl Fn(usize) -> String) {
    let mut conn = server.connect();
    let wait = |n| {
        let mut request = command!("LOCK.ACQUIRE", name(n), "b", 600_000, "WAIT", 0);
        request.arg("MAIL").arg("{box}").arg("HOLDS").arg(1);
        request
    };
    for first in (0..count).step_by(1_000) {
        let keys = first..(first + 1_000).min(count);
        let acquire = |n| command!("LOCK.ACQUIRE", name(n), "a", 600_000);
        let commands: Vec<Cmd> = keys.clone().map(acquire).chain(keys.map(wait)).collect();
        for reply in conn.pipeline(&commands) {
            reply.expect("no error");
        }
    }
    assert_eq!(server.gauge("waiters"), count as i64);
}

fn alone() -> Cluster {
    Cluster::start(1, || Server::builder().module_arg("mail-timeout", "60000"))
}

#[test]
fn the_passing_of_time_does_not_make_the_module_visit_keys_with_waiters() {
    let cluster = alone();
    let server = &cluster.primaries[0];
    queue_at_keys(server, 2_000, |n| format!("key:{n}"));
    await_looks(server);
    let before = server.calls("lock.settle");
    await_looks(server);
    assert_eq!(server.calls("lock.settle"), before);
}

#[test]
fn all_waiters_of_a_slot_that_leaves_are_unblocked_and_no_others() {
    const WAITERS: usize = 20_000;
    let cluster = Cluster::start(2, || Server::builder().module_arg("mail-timeout", "60000"));
    let home = cluster.home_of("{box}");
    let (from, to) = (&cluster.primaries[home], &cluster.primaries[1 - home]);
    let keys_here = (0..).map(|n| format!("key:{n}"));
    let mut keys_here = keys_here.filter(|key| cluster.home_of(key) == home);
    let [tag, other] = [(); 2].map(|()| keys_here.next().expect("any number"));
    assert_ne!(cluster.slot_of(&tag), cluster.slot_of(&other));
    queue_at_keys(from, WAITERS, |n| format!("{{{tag}}}:{n}"));
    let mut conn = from.connect();
    cmd!(conn, "LOCK.ACQUIRE", &other, "a", 600_000);
    let mut stays = from.connect();
    send!(stays, "LOCK.ACQUIRE", &other, "b", 600_000, "WAIT", 0);
    from.await_blocked(&stays);
    let slot = cluster.slot_of(&tag);
    let mut there = to.connect();
    cmd!(there, "CLUSTER", "SETSLOT", slot, "NODE", node_id(to));
    cmd!(there, "CLUSTER", "BUMPEPOCH");
    eventually("the old home knows", || {
        let asked = try_cmd!(conn, "LOCK.INFO", format!("{{{tag}}}:0"));
        matches!(asked, Err(error) if error.starts_with("MOVED "))
    });
    eventually("all but one have been answered", || {
        let waiters = from.gauge("waiters");
        if waiters == 1 { Ok(()) } else { Err(waiters) }
    });
    cmd!(conn, "LOCK.RELEASE", &other, "a");
    granted(&mut stays);
}
