//! Cluster: requests at the node to which a slot is moving, key by key. Clients follow an ASK there.

use std::time::Duration;

use mortise_harness::{
    Cluster, Conn, Resharding, Server, asking, cmd, command, granted, holders_of, int, mail,
    node_id,
};

use crate::{asking_waiter, assert_unblocked, await_looks};

/// Two nodes. The slot of `key` is moving from one to the other, and `a` holds `key` at the second.
fn scene(lease: u64) -> (Resharding, Conn) {
    let moving = Resharding::of("key");
    moving.begin();
    let mut conn = moving.to().connect();
    int(&asking(&mut conn, &command!("LOCK.ACQUIRE key a {lease}")).unwrap());
    (moving, conn)
}

fn waiter(moving: &Resharding, owner: &str) -> Conn {
    asking_waiter(
        moving.to(),
        &command!("LOCK.ACQUIRE key {owner} 60000 WAIT 0"),
    )
}

#[test]
fn a_waiter_redirected_by_ask_waits_until_the_slot_has_arrived() {
    let (moving, mut conn) = scene(60_000);
    let mut b = waiter(&moving, "b");
    await_looks(moving.to());
    assert!(b.recv_within(Duration::ZERO).is_none());
    moving.end();
    await_looks(moving.to());
    cmd!(conn, "LOCK.RELEASE key a");
    granted(&mut b);
}

#[test]
fn a_waiter_redirected_by_ask_is_granted_a_lock_released_during_the_migration() {
    let (moving, mut conn) = scene(60_000);
    let mut b = waiter(&moving, "b");
    let mut c = waiter(&moving, "c");
    asking(&mut conn, &command!("LOCK.RELEASE key a")).expect("a holds");
    granted(&mut b);
    // A waiter that leaves the queue changes nothing for the others.
    drop(waiter(&moving, "d"));
    await_looks(moving.to());
    assert!(c.recv_within(Duration::ZERO).is_none());
    moving.end();
    assert_eq!(holders_of(&mut conn, "key"), ["b"]);
    cmd!(conn, "LOCK.RELEASE key b");
    granted(&mut c);
}

#[test]
fn a_lease_that_ends_before_the_slot_has_arrived_redirects_its_waiters() {
    let (moving, mut conn) = scene(300);
    assert_unblocked(&mut waiter(&moving, "b"), Duration::MAX);
    let again = asking(&mut conn, &command!("LOCK.ACQUIRE key b 60000"));
    int(&again.expect("nobody holds"));
}

#[test]
fn a_waiter_of_a_slot_that_never_arrives_is_unblocked() {
    let (moving, mut conn) = scene(60_000);
    let mut b = waiter(&moving, "b");
    await_looks(moving.to());
    let slot = moving.slot;
    cmd!(conn, "CLUSTER SETSLOT {slot} STABLE");
    assert_unblocked(&mut b, Duration::MAX);
}

/// The server lets no timer write to a key of a slot that is moving to it.
#[test]
fn a_lost_grant_that_could_not_be_undone_is_undone_once_the_slot_has_moved() {
    let (moving, mut conn) = scene(60_000);
    let to = moving.to();
    let lost = asking_waiter(to, &command!("LOCK.RLOCK key u 60000 WAIT 0"));
    let mut reader = asking_waiter(to, &command!("LOCK.RLOCK key r 60000 WAIT 0"));
    let mut writer = asking_waiter(to, &command!("LOCK.WLOCK key w 60000 WAIT 0"));
    conn.pipeline(&[
        command!("ASKING"),
        command!("LOCK.RELEASE key a"),
        command!("CLIENT", "KILL", "ID", lost.client_id()),
    ]);
    granted(&mut reader);
    moving.end();
    int(&cmd!(conn, "LOCK.RELEASE key r"));
    granted(&mut writer);
    assert_eq!(holders_of(&mut conn, "key"), ["w"]);
}

/// The node asks the server for its slots at most every 20 ms, so a request may come to wait just after its slot began to move.
#[test]
fn a_macquire_that_waits_where_its_slot_is_moving_to_gets_tryagain() {
    let cluster = Cluster::start(2, Server::builder);
    let home = cluster.home_of("key");
    let (from, to) = (&cluster.primaries[home], &cluster.primaries[1 - home]);
    let mut names = (0..).map(|n| format!("name{n}"));
    let mailbox = names.find(|name| cluster.home_of(name) != home).unwrap();
    let mut conn = to.connect();
    let keys = names.filter(|name| cluster.home_of(name) == home);
    let moving = keys.take(20).find(|key| {
        let slot = cluster.slot_of(key);
        let replies = conn.pipeline(&[
            // It asks for the slots.
            command!("LOCK.MACQUIRE other 60000 1 {mailbox}"),
            command!("CLUSTER", "SETSLOT", slot, "IMPORTING", node_id(from)),
            command!("ASKING"),
            command!("LOCK.ACQUIRE {key} a 60000"),
            command!("ASKING"),
            command!("LOCK.MACQUIRE m 60000 1 {key} WAIT 0 MAIL {mailbox}"),
        ]);
        int(replies[3].as_ref().unwrap());
        cmd!(conn, "LOCK.LEAVE {mailbox} other");
        replies[5].is_ok()
    });
    let key = moving.expect("one comes to wait");
    let letters = mail!(conn, &mailbox, "WAIT", 2_000);
    let error = letters.only().error.clone().expect("it is refused");
    assert!(error.starts_with("TRYAGAIN "), "{error}");
    assert_eq!(
        int(&asking(&mut conn, &command!("LOCK.RELEASE {key} a")).unwrap()),
        0
    );
}
