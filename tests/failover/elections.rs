//! A primary fails or hands over, and Sentinel or the other nodes of a cluster promote its replica.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::{
    Conn, Record, Server, Stay, assert_finds_two_inside, cmd, command, eventually_within, hold_of,
    int, is_nil, lock_info, queue_of, try_cmd, wait_for_sync_at, waiter,
};

use crate::clustered::Clustered;
use crate::pair::{ask_for_b, await_on_time, renewal};
use crate::topology::{PATIENCE, Settings, Topology, assert_clean, contenders};
use crate::watched::Watched;

/// A wrong setting must show within this many runs. Mostly it does in the first.
const ATTEMPTS: u32 = 5;

#[track_caller]
fn await_refusal(server: &Server, code: &str) {
    eventually_within(PATIENCE, "it refuses every client", || {
        let mut conn = server.connect();
        match try_cmd!(conn, "LOCK.ACQUIRE", "key", "x", 1) {
            Err(error) if error.starts_with(code) => Ok(()),
            other => Err(other),
        }
    });
}

/// Waits until a client has held for this many milliseconds.
#[track_caller]
fn await_hold(server: &Server, held: Range<u64>) {
    let mut conn = server.connect();
    eventually_within(PATIENCE, "a client has held for that long", || {
        let info = lock_info(&mut conn, "key");
        let seen = info.and_then(|info| info.holds.first().map(|hold| hold.held as u64));
        seen.is_some_and(|seen| held.contains(&seen))
    });
}

/// Waits until `a` holds a lock. The primary may refuse until its replicas have acknowledged recent data. Returns the token.
#[track_caller]
fn await_granted(primary: &Server, key: &str, lease: u64) -> i64 {
    let mut conn = primary.connect();
    eventually_within(PATIENCE, "a holds", || {
        let reply = try_cmd!(conn, "LOCK.ACQUIRE {key} a {lease}").ok();
        reply
            .filter(|reply| !is_nil(reply))
            .map(|reply| int(&reply))
    })
}

// It comes back, acts as a primary without data, and becomes a replica after a while.
fn primary_dies<T: Topology>() {
    let settings = T::safe(1_000);
    let mut servers = T::start(settings);
    let clients = contenders(&servers, settings, Stay::Mixed);
    servers.primary_mut().sigkill();
    clients.go_to(servers.successor().port());
    // Only with it the new primary has enough replicas.
    servers.primary_mut().start_again();
    let (old, new) = (servers.primary(), servers.successor());
    clients.await_grants(new, 3, PATIENCE);
    servers.await_demotion(new);
    await_refusal(old, T::DEMOTED);
    assert_clean(&clients.stop(), old, new);
}

// The primary is cut off, together with clients, and stays alive.
//
//   old primary  ══╳ cut ──grants──grants──┤ refuses                      ┬ mended: made a replica
//   the others   ══╳     (down) promoted ├──────── grace ────────┤ grants │
fn primary_is_cut_off<T: Topology>(settings: Settings) -> Record {
    let servers = T::start(settings);
    let clients = contenders(&servers, settings, Stay::Silent);
    let old = servers.primary();
    // The present lease ends soon, so that only the old primary knows of the next grant.
    await_hold(old, settings.max_lease - 1_000..settings.max_lease - 300);
    servers.cut_off_primary();
    let new = servers.successor();
    // An operator wants writes at once: the grace protects against the old primary, which stops before the grace ends.
    servers.demand(new, 0);
    clients.go_to(new.port());
    clients.await_grants(new, 1, PATIENCE);
    let role = &old.info("replication")["role"];
    assert_eq!(role, "master", "alive and cut off");
    let error = try_cmd!(old.connect(), "LOCK.ACQUIRE", "key", "x", 1).unwrap_err();
    assert!(error.starts_with(T::CUT_OFF), "{error}");
    servers.network().mend();
    servers.await_demotion(new);
    servers.demand(new, 2);
    await_refusal(old, T::DEMOTED);
    clients.await_grants(new, 1, PATIENCE);
    clients.stop()
}

// The primary comes back without its data before anybody has noticed that it was down.
//
//   primary   ──a holds──✝┌ started, empty ├── grace ──┤ grants
//   replicas              (become empty, too)
//   others    ──────────── notice nothing ─────────────────────
fn primary_forgets<T: Topology>(settings: Settings) -> Record {
    loop {
        let mut servers = T::start(settings);
        let clients = contenders(&servers, settings, Stay::Silent);
        await_hold(servers.primary(), 0..500);
        servers.primary_mut().sigkill();
        let before = clients.granted_by(servers.primary());
        servers.primary_mut().start_again();
        let primary = servers.primary();
        let is_noticed = eventually_within(PATIENCE, "it grants again, or is replaced", || {
            let is_replaced = primary.info("replication")["role"] != "master";
            let grants = clients.granted_by(primary) >= before + 2;
            (is_replaced || grants).then_some(is_replaced)
        });
        if is_noticed {
            // The machine was so busy that the start took too long.
            continue;
        }
        servers.assert_unnoticed();
        for replica in servers.replicas() {
            let port = servers.network().port_of(primary);
            wait_for_sync_at(port, primary, replica);
        }
        return clients.stop();
    }
}

// A primary that the others cannot reach stops by itself.
//
//   primary    ──grants──❄❄❄❄❄❄❄ wakes: knows neither of its successor nor of the freeze
//   replica                elected ··· grace ··· grants
fn primary_is_frozen<T: Topology>() {
    let settings = T::safe(1_000);
    let servers = T::start(settings);
    let clients = contenders(&servers, settings, Stay::Mixed);
    servers.primary().stop_signal();
    let new = servers.successor();
    clients.go_to(new.port());
    clients.await_grants(new, 2, PATIENCE);
    servers.primary().cont_signal();
    servers.await_demotion(new);
    clients.await_grants(new, 3, PATIENCE);
    clients.stop().assert_exclusive();
}

/// The waiter is sent away. A Sentinel may close the connections of the primary that it demotes.
#[track_caller]
fn assert_sent_away(waiter: &mut Conn, within: Duration) {
    let reply = waiter.recv_within(within).expect("an answer");
    let error = reply.expect_err("sent away");
    let gone = error.starts_with("UNBLOCKED ") || error.starts_with("connection closed");
    assert!(gone, "{error}");
}

// A planned failover under load: holds stay, waiters are sent away.
fn primary_hands_over<T: Topology>() {
    let settings = T::safe(1_000);
    let servers = T::start(settings);
    let clients = contenders(&servers, settings, Stay::Mixed);
    let old = servers.primary();
    let mut conn = old.connect();
    let held = "held:{key}";
    cmd!(conn, "CONFIG SET lock.max-lease 600000");
    let token = await_granted(old, held, 600_000);
    let mut b = waiter!(old, "LOCK.ACQUIRE {held} b 600000 WAIT 0");
    cmd!(conn, "CONFIG SET lock.mail-timeout 60000");
    let mut letters = waiter!(old, "LOCK.MAIL box:{{key}} WAIT 30000");
    let new = servers.hand_over();
    clients.go_to(new.port());
    assert_sent_away(&mut b, PATIENCE);
    // Its time would be over with no letters.
    assert_sent_away(&mut letters, Duration::from_secs(29));
    clients.await_grants(new, 3, PATIENCE);
    servers.await_demotion(new);
    let mut conn = new.connect();
    assert_eq!(hold_of(&mut conn, held, "a").unwrap().token, token);
    assert!(queue_of(&mut conn, held).is_empty());
    assert_eq!(old.gauge("waiters"), 0);
    await_refusal(old, T::DEMOTED);
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE {held} a")), 0);
    assert_clean(&clients.stop(), old, new);
}

// A waiter that the failover sends away asks the new primary, and is granted.
fn waiter_asks_again<T: Topology>() {
    let servers = T::start(T::safe(8_000));
    let old = servers.primary();
    await_granted(old, "key", 8_000);
    let mut ask = servers.client();
    let waiter = thread::spawn(move || {
        let acquire = command!("LOCK.ACQUIRE key b 8000 WAIT 0 HOLDS 1");
        let mut refusals = Vec::new();
        let began = Instant::now();
        loop {
            match ask(&acquire) {
                // At once, because it holds for only 8 s, and Sentinels are slow.
                Ok(Some(token)) => {
                    let renewed = ask(&command!("LOCK.RENEW key b 8000"));
                    return (token, renewed, refusals);
                }
                Ok(None) => panic!("it waits without a limit"),
                Err(error) => refusals.push(error.to_string()),
            }
            assert!(began.elapsed() < PATIENCE, "{refusals:?}");
            thread::sleep(Duration::from_millis(100));
        }
    });
    // However long the others take, the old primary grants b nothing.
    let mut holder = old.connect();
    thread::spawn(move || {
        while try_cmd!(holder, "LOCK.RENEW key a 8000").is_ok_and(|it| !is_nil(&it)) {
            thread::sleep(Duration::from_millis(500));
        }
    });
    eventually_within(PATIENCE, "b waits", || {
        queue_of(&mut old.connect(), "key") == ["b"]
    });
    let new = servers.hand_over();
    let (token, renewed, refusals) = waiter.join().expect("b is granted");
    assert_eq!(renewed, Ok(Some(token)));
    let hold = hold_of(&mut new.connect(), "key", "b").unwrap();
    assert_eq!(hold.token, token);
    assert!(!refusals.is_empty(), "b was sent away");
}

/// How late the stream is: for longer than the others take to promote a replica.
const LATE: Duration = Duration::from_secs(11);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Late {
    /// Once; then the stream catches up.
    Once,
    /// The replica has known only the late stream.
    Always,
}

// The stream is late and catches up; then the primary is cut off, ends a lease and grants. The replica that takes over received that lease late.
//
//   old primary  ──grants a─────────────────────┤ cut off ┤ a's lease is over: grants b ┤ refuses
//   replica          ········ LATE ········├─ counts from here ───── elected ─ TRYAGAIN ─ RENEW a ? ──▶ null
fn primary_is_cut_off_after_a_late_stream<T: Topology>(late: Late, grace: bool) -> bool {
    let lease = LATE.as_millis() as u64 + if grace { 2_000 } else { 600 };
    let settings = match T::safe(lease + 1_000) {
        safe if grace => safe,
        safe => safe.without_grace(),
    };
    let servers = T::start(settings);
    let (old, network) = (servers.primary(), servers.network());
    let mut conn = old.connect();
    await_granted(old, "key", 500);
    cmd!(conn, "LOCK.RELEASE key a");
    if late == Late::Always {
        network.delay_stream(old, LATE);
        thread::sleep(LATE + 2 * settings.lease() + Duration::from_secs(1));
    } else {
        network.hold_stream(old, true);
    }
    int(&cmd!(conn, "LOCK.ACQUIRE key a {lease}"));
    if late == Late::Once {
        thread::sleep(LATE);
        network.hold_stream(old, false);
    }
    for replica in servers.replicas() {
        let mut there = replica.connect();
        // Only in a cluster.
        let _ = try_cmd!(there, "READONLY");
        eventually_within(PATIENCE, "the replicas have the hold", || {
            hold_of(&mut there, "key", "a").is_some()
        });
    }
    let arrived = Instant::now();
    if late == Late::Once {
        await_on_time(old);
    }
    let _b = eventually_within(PATIENCE, "b waits", || {
        let (b, answer) = ask_for_b(old, settings.max_lease);
        match answer {
            Some(Err(error)) => Err(error),
            _ => Ok(b),
        }
    });
    servers.cut_off_primary();
    let new = servers.successor();
    servers.demand(new, 0);
    let renewed = !is_nil(&renewal(new, "key", "a", settings.max_lease));
    if renewed {
        // Without a grace the reply may come early.
        thread::sleep(Duration::from_millis(lease).saturating_sub(LATE));
    }
    // On a busy machine the lease is over by now.
    let lasts = arrived.elapsed() + Duration::from_secs(1) < Duration::from_millis(lease);
    let is_held = hold_of(&mut new.connect(), "key", "a").is_some();
    assert!(is_held || !lasts, "it keeps others out");
    let others = lock_info(&mut conn, "key").map_or(Vec::new(), |info| info.holds);
    renewed && others.iter().any(|hold| hold.owner == b"b")
}

mod by_sentinel {
    use super::*;

    #[test]
    fn a_primary_that_dies_and_comes_back_leaves_no_two_inside() {
        primary_dies::<Watched>();
    }

    #[test]
    fn a_primary_cut_off_with_clients_on_its_side_leaves_no_two_inside() {
        primary_is_cut_off::<Watched>(Watched::safe(Watched::LONG)).assert_exclusive();
    }

    #[test]
    fn a_primary_that_restarts_empty_before_anybody_notices_leaves_no_two_inside() {
        primary_forgets::<Watched>(Watched::safe(Watched::LONG)).assert_exclusive();
    }

    #[test]
    fn a_requested_failover_under_load_keeps_holds_and_unblocks_waiters() {
        primary_hands_over::<Watched>();
    }

    #[test]
    fn a_waiter_that_a_failover_unblocks_asks_again_where_sentinel_says_and_is_granted() {
        waiter_asks_again::<Watched>();
    }

    #[test]
    fn a_hold_that_came_late_is_not_revived_by_the_server_that_sentinels_promote() {
        assert!(!primary_is_cut_off_after_a_late_stream::<Watched>(
            Late::Once,
            true
        ));
    }

    #[test]
    #[ignore = "a control that repeats elections: every week"]
    fn without_a_grace_a_primary_cut_off_with_clients_on_its_side_leaves_two_inside() {
        let settings = Watched::safe(Watched::LONG).without_grace();
        assert_finds_two_inside(ATTEMPTS, || primary_is_cut_off::<Watched>(settings));
    }

    #[test]
    #[ignore = "a control that repeats elections: every week"]
    fn without_a_grace_a_primary_that_restarts_empty_leaves_two_inside() {
        let settings = Watched::safe(Watched::LONG).without_grace();
        assert_finds_two_inside(ATTEMPTS, || primary_forgets::<Watched>(settings));
    }

    #[test]
    #[ignore = "a control that repeats elections: every week"]
    fn without_a_grace_a_hold_that_came_late_is_revived_by_the_server_that_sentinels_promote() {
        let run = |_| primary_is_cut_off_after_a_late_stream::<Watched>(Late::Once, false);
        assert!((0..ATTEMPTS).any(run));
    }
}

mod in_a_cluster {
    use super::*;

    #[test]
    fn a_primary_that_dies_and_comes_back_leaves_no_two_inside() {
        primary_dies::<Clustered>();
    }

    #[test]
    fn a_primary_cut_off_with_clients_on_its_side_leaves_no_two_inside() {
        primary_is_cut_off::<Clustered>(Clustered::safe(Clustered::LONG)).assert_exclusive();
    }

    #[test]
    fn a_primary_that_restarts_empty_before_anybody_notices_leaves_no_two_inside() {
        primary_forgets::<Clustered>(Clustered::safe(Clustered::LONG)).assert_exclusive();
    }

    #[test]
    fn a_primary_that_was_frozen_while_its_replica_was_elected_leaves_no_two_inside() {
        primary_is_frozen::<Clustered>();
    }

    #[test]
    fn a_manual_failover_under_load_keeps_holds_and_unblocks_waiters() {
        primary_hands_over::<Clustered>();
    }

    #[test]
    fn a_waiter_that_a_failover_unblocks_asks_again_and_is_granted() {
        waiter_asks_again::<Clustered>();
    }

    #[test]
    fn a_hold_that_came_late_is_not_revived_by_the_replica_that_takes_over() {
        assert!(!primary_is_cut_off_after_a_late_stream::<Clustered>(
            Late::Once,
            true
        ));
    }

    #[test]
    fn a_hold_of_a_stream_that_was_always_late_is_not_revived_by_the_replica_that_takes_over() {
        assert!(!primary_is_cut_off_after_a_late_stream::<Clustered>(
            Late::Always,
            true
        ));
    }

    #[test]
    #[ignore = "a control that repeats elections: every week"]
    fn without_a_grace_a_primary_cut_off_with_clients_on_its_side_leaves_two_inside() {
        let settings = Clustered::safe(Clustered::LONG).without_grace();
        assert_finds_two_inside(ATTEMPTS, || primary_is_cut_off::<Clustered>(settings));
    }

    #[test]
    #[ignore = "a control that repeats elections: every week"]
    fn without_a_grace_a_primary_that_restarts_empty_leaves_two_inside() {
        // On a busy machine it may rejoin so late that the forgotten lease is over.
        let settings = Clustered::safe(Clustered::LONG).without_grace();
        assert_finds_two_inside(ATTEMPTS, || primary_forgets::<Clustered>(settings));
    }

    #[test]
    #[ignore = "a control that repeats elections: every week"]
    fn without_a_grace_a_hold_that_came_late_is_revived_by_the_replica_that_takes_over() {
        let run = |_| primary_is_cut_off_after_a_late_stream::<Clustered>(Late::Once, false);
        assert!((0..ATTEMPTS).any(run));
    }
}
