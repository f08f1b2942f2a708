//! From the millisecond its lease ends, an owner holds nothing, whether or not the sweep has deleted the key. No sweep runs during a
//! script or a transaction, so there the ended hold still exists.

use std::time::{Duration, Instant};

use mortise_harness::{Conn, Server, array, cmd, error_line, eventually, int, is_nil};
use redis::Value;

/// Runs `commands` in a transaction in which `owner`'s lease on `key` has just ended, unswept.
#[track_caller]
fn after_the_lease_in_a_transaction(conn: &mut Conn, commands: &[&str]) -> Vec<Value> {
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.ACQUIRE key a 10");
    cmd!(conn, "DEBUG SLEEP 0.011");
    cmd!(conn, "EXISTS key");
    for command in commands {
        cmd!(conn, "{command}");
    }
    let replies = cmd!(conn, "EXEC");
    let replies = array(&replies);
    assert!(int(&replies[0]) > 0);
    assert_eq!(int(&replies[2]), 1, "the key has not been swept");
    replies[3..].to_vec()
}

#[test]
fn a_hold_whose_lease_is_over_is_not_shown() {
    let server = Server::start();
    let replies = after_the_lease_in_a_transaction(
        &mut server.connect(),
        &["LOCK.INFO key", "LOCK.INFO key OWNER a"],
    );
    assert!(replies.iter().all(is_nil), "{replies:?}");
}

#[test]
fn an_expired_hold_can_be_neither_released_nor_renewed_nor_fenced() {
    let server = Server::start();
    for command in [
        "LOCK.RELEASE key a",
        "LOCK.RELEASE key a ALL",
        "LOCK.RELEASE key a HOLDS 1",
        "LOCK.RENEW key a 10000",
        "LOCK.FENCE key a 1",
    ] {
        let replies =
            after_the_lease_in_a_transaction(&mut server.connect(), &[command, "LOCK.INFO key"]);
        assert!(is_nil(&replies[0]), "{command:?}: {replies:?}");
        assert!(is_nil(&replies[1]), "{command:?} revived it: {replies:?}");
    }
}

#[test]
fn a_lock_whose_lease_is_over_is_granted_to_the_next_request() {
    let server = Server::start();
    for acquire in ["LOCK.ACQUIRE", "LOCK.WLOCK", "LOCK.RLOCK"] {
        let replies = after_the_lease_in_a_transaction(
            &mut server.connect(),
            &[
                &format!("{acquire} key b 10000"),
                "LOCK.INFO key OWNER a",
                "LOCK.INFO key OWNER b",
                "DEL key",
            ],
        );
        assert!(int(&replies[0]) > 0, "{replies:?}");
        assert!(is_nil(&replies[1]), "{replies:?}");
        assert!(!is_nil(&replies[2]), "{replies:?}");
    }
}

#[test]
fn a_lease_counts_down_to_one_and_then_ends_for_every_command_at_once() {
    let (_server, mut conn) = Server::start_connected();
    let script = r"
        redis.call('LOCK.ACQUIRE', KEYS[1], 'a', 20)
        local last = 20
        while true do
            local hold = redis.call('LOCK.INFO', KEYS[1], 'OWNER', 'a')
            if not hold then break end
            local lease = hold[10]
            if lease < 1 or lease > last then return redis.error_reply('LEASE ' .. lease) end
            last = lease
        end
        return {
            redis.call('EXISTS', KEYS[1]),
            redis.call('LOCK.RENEW', KEYS[1], 'a', 1000),
            redis.call('LOCK.RELEASE', KEYS[1], 'a'),
            redis.call('LOCK.ACQUIRE', KEYS[1], 'b', 1000),
            last
        }";
    for _ in 0..10 {
        let replies = cmd!(conn, "EVAL", script, 1, "key");
        let replies = array(&replies);
        assert_eq!(int(&replies[0]), 1, "the key has not been swept");
        assert!(is_nil(&replies[1]) && is_nil(&replies[2]), "{replies:?}");
        assert!(int(&replies[3]) > 0);
        assert!((1..=20).contains(&int(&replies[4])));
        cmd!(conn, "DEL key");
    }
}

#[test]
fn the_key_of_an_expired_lock_is_deleted_within_200_ms() {
    let (_server, mut conn) = Server::start_connected();
    let mut lags: Vec<Duration> = (0..9)
        .map(|n| {
            // Leases of all lengths, so that they end at all phases of the sweep.
            let lease = Duration::from_millis(40 + 23 * n);
            let asked = Instant::now();
            cmd!(conn, "LOCK.ACQUIRE", "key", "a", lease.as_millis() as u64);
            eventually("the key is gone", || int(&cmd!(conn, "EXISTS key")) == 0);
            // The lease began after `asked`, so this is at least the true lag.
            asked.elapsed().saturating_sub(lease)
        })
        .collect();
    lags.sort();
    // The median, because the machine may be busy.
    assert!(lags[4] <= Duration::from_millis(200), "{lags:?}");
}

#[test]
fn locks_in_every_database_are_swept() {
    let (server, mut conn) = Server::start_connected();
    for db in 0..16 {
        cmd!(conn, "SELECT {db}");
        cmd!(conn, "LOCK.ACQUIRE", "key", "a", 20 + 5 * db);
        cmd!(conn, "LOCK.ACQUIRE kept a 60000");
    }
    eventually("one key is left in each database", || {
        let keyspace = server.info("keyspace");
        let all = (0..16).all(|db| {
            let line = keyspace.get(&format!("db{db}"));
            line.is_some_and(|line| line.starts_with("keys=1,"))
        });
        if all { Ok(()) } else { Err(keyspace) }
    });
    assert_eq!(int(&cmd!(conn, "EXISTS kept")), 1);
}

/// Short names are stored differently from long ones.
#[test]
fn locks_are_swept_whatever_the_length_of_their_names() {
    let (_server, mut conn) = Server::start_connected();
    for len in 0..100 {
        cmd!(conn, "LOCK.ACQUIRE", "k".repeat(len), "a", 1);
    }
    eventually("the keys are gone", || int(&cmd!(conn, "DBSIZE")) == 0);
}

#[test]
fn a_wrong_request_for_an_expired_lock_is_still_an_error() {
    let server = Server::start();
    let replies = after_the_lease_in_a_transaction(
        &mut server.connect(),
        &["LOCK.ACQUIRE key b 0", "LOCK.FENCE key a 9007199254740991"],
    );
    for reply in &replies {
        let line = error_line(reply).unwrap_or_else(|| panic!("{reply:?} is no error"));
        assert!(line.starts_with("ERR "), "{line}");
    }
}
