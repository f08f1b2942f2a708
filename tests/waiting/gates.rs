//! A hand-off is a write: while the server refuses writes, waiters keep waiting. Lack of memory does not prevent a hand-off.

use std::fs;

use mortise_harness::{
    Conn, Server, assert_error, assert_same_data, cmd, command, eventually, granted, hold_of,
    holders_of, int, is_nil, lock_info, queue_of, refused, send, server_micros, text, waiter,
};

/// A primary with one replica, as many as it requires.
fn with_replica() -> (Server, Server) {
    let primary = Server::start();
    let replica = primary.start_replica();
    demand(&primary, 1);
    eventually("the replica counts", || {
        primary.info("replication")["min_slaves_good_slaves"] == "1"
    });
    (primary, replica)
}

fn demand(primary: &Server, replicas: u32) {
    let mut conn = primary.connect();
    cmd!(conn, "CONFIG SET min-replicas-to-write {replicas}");
}

#[track_caller]
fn await_lease_over(conn: &mut Conn, key: &str, owner: &str) {
    eventually("the lease is over", || hold_of(conn, key, owner).is_none());
}

#[test]
fn a_lease_that_ends_while_replicas_are_too_few_lets_nobody_in() {
    let (primary, replica) = with_replica();
    let mut a = primary.connect();
    cmd!(a, "LOCK.ACQUIRE key a 1500");
    let mut b = waiter!(primary, "LOCK.ACQUIRE key b 60000 WAIT 0");
    demand(&primary, 2);
    await_lease_over(&mut a, "key", "a");
    primary.await_gauge("held_back", 1);
    let info = lock_info(&mut a, "key").unwrap();
    assert_eq!((&*info.mode, info.holders, info.waiters), ("none", 0, 1));
    demand(&primary, 1);
    granted(&mut b);
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
    assert_same_data(&primary, &replica);
}

#[test]
fn an_upgrade_whose_read_hold_ends_while_replicas_are_too_few_gets_null_at_once() {
    let (primary, _replica) = with_replica();
    let mut a = primary.connect();
    cmd!(a, "LOCK.RLOCK key a 1500");
    cmd!(a, "LOCK.RLOCK key b 60000");
    let mut upgrade = waiter!(primary, "LOCK.WLOCK key a 60000 WAIT 0");
    let mut behind = waiter!(primary, "LOCK.WLOCK key c 60000 WAIT 0");
    demand(&primary, 2);
    await_lease_over(&mut a, "key", "a");
    assert!(is_nil(&upgrade.recv()));
    assert_eq!(queue_of(&mut a, "key"), ["c"]);
    demand(&primary, 1);
    assert_eq!(int(&cmd!(a, "LOCK.RELEASE key b")), 0);
    granted(&mut behind);
}

#[test]
fn a_release_is_refused_while_replicas_are_too_few() {
    let (primary, _replica) = with_replica();
    let mut a = primary.connect();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let mut b = waiter!(primary, "LOCK.ACQUIRE key b 60000 WAIT 0");
    demand(&primary, 2);
    refused!(a, "NOREPLICAS ", "LOCK.RELEASE key a");
    assert_eq!(queue_of(&mut a, "key"), ["b"]);
    demand(&primary, 1);
    assert_eq!(int(&cmd!(a, "LOCK.RELEASE key a")), 0);
    granted(&mut b);
}

#[test]
fn a_lost_replica_delays_the_hand_off_until_it_is_back() {
    let (primary, mut replica) = with_replica();
    let mut a = primary.connect();
    cmd!(a, "LOCK.ACQUIRE key a 1000");
    let mut b = waiter!(primary, "LOCK.ACQUIRE key b 60000 WAIT 0");
    replica.sigkill();
    await_lease_over(&mut a, "key", "a");
    primary.await_gauge("held_back", 1);
    assert_eq!(queue_of(&mut a, "key"), ["b"]);
    replica.start_again();
    granted(&mut b);
    assert_same_data(&primary, &replica);
}

#[test]
fn waits_time_out_and_can_be_unblocked_while_replicas_are_too_few() {
    let (primary, _replica) = with_replica();
    let mut a = primary.connect();
    cmd!(a, "LOCK.RLOCK key a 60000");
    let mut w = waiter!(primary, "LOCK.WLOCK key w 60000 WAIT 1500");
    let mut x = waiter!(primary, "LOCK.WLOCK key x 60000 WAIT 0");
    let mut r = waiter!(primary, "LOCK.RLOCK key r 60000 WAIT 0");
    demand(&primary, 2);
    assert!(is_nil(&w.recv()));
    cmd!(a, "CLIENT", "UNBLOCK", x.client_id());
    assert!(is_nil(&x.recv()));
    // The reader could be granted, and is when the server accepts writes again.
    assert_eq!(queue_of(&mut a, "key"), ["r"]);
    assert_eq!(holders_of(&mut a, "key"), ["a"]);
    demand(&primary, 1);
    granted(&mut r);
}

#[test]
fn a_grant_lost_while_replicas_become_too_few_is_undone_later() {
    let (primary, _replica) = with_replica();
    let mut a = primary.connect();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let b = waiter!(primary, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let mut c = waiter!(primary, "LOCK.ACQUIRE key c 60000 WAIT 0");
    a.pipeline(&[
        command!("LOCK.RELEASE key a"),
        command!("CLIENT", "KILL", "ID", b.client_id()),
        command!("CONFIG SET min-replicas-to-write 2"),
    ]);
    assert_eq!(queue_of(&mut a, "key"), ["c"]);
    demand(&primary, 1);
    granted(&mut c);
    assert_eq!(holders_of(&mut a, "key"), ["c"]);
}

#[test]
fn a_failed_save_delays_the_hand_off_until_one_succeeds() {
    let (server, mut a) = Server::configured("save 3600 1000000");
    cmd!(a, "LOCK.ACQUIRE key a 1500");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let dump = server.dir().join("dump.rdb");
    fs::create_dir(&dump).unwrap();
    cmd!(a, "BGSAVE");
    let persistence = |field: &str| server.info("persistence")[field].clone();
    eventually("the save has failed", || {
        persistence("rdb_last_bgsave_status") == "err"
    });
    await_lease_over(&mut a, "key", "a");
    refused!(a, "MISCONF ", "LOCK.RELEASE key b");
    server.await_gauge("held_back", 1);
    assert_eq!(queue_of(&mut a, "key"), ["b"]);
    fs::remove_dir(&dump).unwrap();
    cmd!(a, "BGSAVE");
    granted(&mut b);
}

#[test]
fn lack_of_memory_prevents_no_hand_off() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    cmd!(a, "LOCK.ACQUIRE short a 1000");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let mut c = waiter!(server, "LOCK.ACQUIRE short c 60000 WAIT 0");
    let mut d = waiter!(server, "LOCK.ACQUIRE key d 60000 WAIT 0");
    cmd!(a, "CONFIG SET maxmemory 1");
    send!(a, "LOCK.ACQUIRE key e 60000 WAIT 0");
    assert_error(a.try_recv(), "OOM ");
    cmd!(a, "LOCK.RELEASE key a");
    granted(&mut b);
    granted(&mut c);
    cmd!(a, "DEL key");
    granted(&mut d);
}

#[test]
fn a_key_held_back_in_a_cluster_is_remembered_once() {
    let (server, mut a) = Server::configured("cluster-enabled yes");
    cmd!(a, "CLUSTER ADDSLOTSRANGE 0 16383");
    eventually("the cluster is up", || {
        text(&cmd!(a, "CLUSTER INFO")).contains("cluster_state:ok")
    });
    cmd!(a, "LOCK.ACQUIRE key a 1500");
    cmd!(a, "LOCK.ACQUIRE other a 60000");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let mut c = waiter!(server, "LOCK.ACQUIRE other c 60000 WAIT 3000");
    demand(&server, 1);
    // Long enough for many attempts.
    assert!(is_nil(&c.recv()));
    let held_back = server.gauge("held_back");
    assert!(held_back <= 2, "{held_back} for one key that waits");
    assert_eq!(queue_of(&mut a, "key"), ["b"]);
    demand(&server, 0);
    granted(&mut b);
}

#[test]
fn a_command_just_after_writes_are_accepted_again_sees_earlier_releases() {
    let (primary, _replica) = with_replica();
    let mut a = primary.connect();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    cmd!(a, "LOCK.ACQUIRE {{key}}other b 60000");
    let mut c = waiter!(primary, "LOCK.ACQUIRE key c 60000 WAIT 0");
    let mut b = waiter!(primary, "LOCK.ACQUIRE key b 60000 WAIT 0");
    // b holds now, but when its own request is due, the server refuses writes.
    a.pipeline(&[
        command!("COPY {{key}}other key REPLACE"),
        command!("CONFIG SET min-replicas-to-write 2"),
    ]);
    primary.await_gauge("held_back", 1);
    let replies = a.pipeline(&[
        command!("CONFIG SET min-replicas-to-write 1"),
        command!("LOCK.RELEASE key b"),
    ]);
    assert_eq!(
        int(replies[1].as_ref().unwrap()),
        1,
        "its own request comes before its release"
    );
    granted(&mut b);
    assert_eq!(queue_of(&mut a, "key"), ["c"]);
    cmd!(a, "LOCK.RELEASE key b");
    granted(&mut c);
}

/// The turns of the event loop; `None` if the server does not count them.
fn turns(server: &Server) -> Option<u64> {
    server.info("stats").get("eventloop_cycles")?.parse().ok()
}

#[test]
fn refused_work_on_a_crowd_is_retried_after_a_pause() {
    let (primary, _replica) = with_replica();
    let mut conn = primary.connect();
    for owner in ["stays", "stays:too"] {
        cmd!(conn, "LOCK.RLOCK key {owner} 60000");
    }
    // A crowd of readers ends. The first command leaves most of the work to a timer, and then the server refuses writes.
    let mut pipe: Vec<_> = (0..500)
        .map(|n| command!("LOCK.RLOCK key reader:{n} 500"))
        .collect();
    pipe.extend([
        command!("MULTI"),
        command!("DEBUG SLEEP 0.7"),
        command!("LOCK.RENEW key stays 60000"),
        command!("CONFIG SET min-replicas-to-write 2"),
        command!("EXEC"),
    ]);
    for reply in conn.pipeline(&pipe) {
        reply.unwrap();
    }
    let Some(before) = turns(&primary) else {
        return;
    };
    let began = server_micros(&mut conn) / 1_000;
    let passed = eventually("a second has passed", || {
        let passed = server_micros(&mut conn) / 1_000 - began;
        (passed >= 1_000).then_some(passed)
    });
    // The work is tried at the timer of 100 ms, and not every millisecond. The checks above turn the loop, too.
    let turned = turns(&primary).expect("it counted before") - before;
    assert!(
        turned < 400 * passed / 1_000,
        "{turned} turns in {passed} ms"
    );
    demand(&primary, 1);
    primary.await_gauge("holders", 2);
}
