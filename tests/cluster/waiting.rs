//! Cluster: the module handles waiters of slots that move without visiting every key with waiters.

use mortise_harness::redis::Cmd;
use mortise_harness::{
    Builder, Cluster, Server, cmd, command, eventually, granted, node_id, send, try_cmd,
};

use crate::await_looks;

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

fn node() -> Builder {
    Server::builder().module_arg("mail-timeout", "60000")
}

#[test]
fn the_passing_of_time_does_not_make_the_module_visit_keys_with_waiters() {
    let cluster = Cluster::start(1, node);
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
    let cluster = Cluster::start(2, node);
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
