//! Sentinel: failovers that it decides, and requested ones.

use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::redis::sentinel::{SentinelClient, SentinelServerType};
use mortise_harness::{
    Server, Stay, cmd, command, eventually_within, int, is_nil, queue_of, try_cmd, waiter,
};

use crate::watched::{LONG, NAME, PATIENCE, SAFE, Watched, assert_clean, assert_served, clients};

/// Waits until `a` holds `other`. The primary may refuse until its replicas have acknowledged recent data.
fn await_granted(primary: &Server, lease: u64) {
    let mut conn = primary.connect();
    eventually_within(PATIENCE, "a holds", || {
        let reply = try_cmd!(conn, "LOCK.ACQUIRE", "other", "a", lease);
        reply.is_ok_and(|reply| !is_nil(&reply))
    });
}

#[test]
fn a_requested_failover_by_sentinel_leaves_no_two_inside_and_no_waiter() {
    let watched = Watched::start(SAFE);
    let clients = clients(&watched.primary, SAFE, Stay::Mixed);
    let old = watched.primary.port();
    await_granted(&watched.primary, 1_000);
    let mut waiter = waiter!(watched.primary, "LOCK.ACQUIRE other b 1000 WAIT 0");
    let promoted = watched.fail_over();
    clients.go_to(promoted.port());
    let granted_or_gone = waiter.recv_within(PATIENCE).expect("answered");
    if let Err(error) = granted_or_gone {
        // A Sentinel closes the connections of the primary that it demotes.
        let gone = error.starts_with("UNBLOCKED ") || error.starts_with("connection closed");
        assert!(gone, "{error}");
    }
    assert_served(&clients, promoted);
    watched.await_replica(&watched.primary, promoted);
    assert_eq!(int(&cmd!(promoted.connect(), "EXISTS", "other")), 0);
    assert_clean(&clients.stop(), old, promoted.port());
}

#[test]
fn a_waiter_that_a_failover_unblocks_asks_again_where_sentinel_says_and_is_granted() {
    let watched = Watched::start(LONG);
    let old = &watched.primary;
    await_granted(old, 8_000);
    let urls: Vec<String> = watched.sentinels.iter().map(Server::url).collect();
    let mut sentinel =
        SentinelClient::build(urls, String::from(NAME), None, SentinelServerType::Master)
            .expect("urls");
    let waiter = thread::spawn(move || {
        let acquire = command!("LOCK.ACQUIRE", "other", "b", 8_000, "WAIT", 0, "HOLDS", 1);
        let mut refusals = Vec::new();
        let began = Instant::now();
        loop {
            // Asks a Sentinel each time who the primary is.
            let conn = sentinel.get_connection();
            let granted = conn.and_then(|mut conn| {
                let token: i64 = acquire.query(&mut conn)?;
                // At once, because it holds for only 8 s, and Sentinels are slow.
                let renewed: i64 = command!("LOCK.RENEW", "other", "b", 8_000).query(&mut conn)?;
                let (_, port): (String, u16) =
                    command!("CONFIG", "GET", "port").query(&mut conn)?;
                Ok((token, renewed, port))
            });
            match granted {
                Ok((token, renewed, port)) => return (token, renewed, port, refusals),
                Err(error) => refusals.push(error.to_string()),
            }
            assert!(began.elapsed() < PATIENCE, "{refusals:?}");
            thread::sleep(Duration::from_millis(100));
        }
    });
    // However long the Sentinels take, the old primary grants b nothing.
    let mut holder = old.connect();
    thread::spawn(move || {
        while try_cmd!(holder, "LOCK.RENEW", "other", "a", 8_000).is_ok_and(|it| !is_nil(&it)) {
            thread::sleep(Duration::from_millis(500));
        }
    });
    eventually_within(PATIENCE, "b waits", || {
        queue_of(&mut old.connect(), "other") == ["b"]
    });
    let promoted = watched.fail_over();
    let (token, renewed, port, refusals) = waiter.join().expect("b is granted");
    assert_eq!(renewed, token);
    assert_eq!(port, promoted.port());
    assert!(!refusals.is_empty(), "b was unblocked");
}
