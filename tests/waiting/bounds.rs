//! How many may wait, and what happens when very many do.
//!
//! `MORTISE_LONG=1` makes it ten thousand instead of two.

use std::env;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use mortise_harness::{
    Conn, Server, bytes, cmd, command, eventually, granted, int, is_nil, queue_of, text, try_cmd,
    waiter,
};

fn many() -> usize {
    let wanted = if env::var_os("MORTISE_LONG").is_some() {
        10_000
    } else {
        2_000
    };
    // One for each connection: the server's end is in another process.
    wanted.min(open_files().saturating_sub(500))
}

/// How many files this process may have open.
fn open_files() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3));
    soft.and_then(|soft| soft.parse().ok()).unwrap_or(1_024)
}

/// A server for this many connections, and a permit for them: if two tests together would open more files than this process may, one waits
/// for the other.
fn for_many() -> (Option<MutexGuard<'static, ()>>, Server) {
    static TURN: Mutex<()> = Mutex::new(());
    let scarce = 2 * many() + 500 > open_files();
    let turn = scarce.then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner));
    (
        turn,
        Server::builder().config("maxclients", "12000").start(),
    )
}

/// Checks that the server replies while `busy` runs.
fn answers_meanwhile(server: &Server, busy: impl FnOnce() + Send) {
    let mut conn = server.connect();
    thread::scope(|scope| {
        let busy = scope.spawn(busy);
        let mut pings = 0;
        while !busy.is_finished() || pings == 0 {
            assert_eq!(text(&cmd!(conn, "PING")), "PONG");
            pings += 1;
            thread::sleep(Duration::from_millis(1));
        }
        busy.join().unwrap();
    });
}

fn nobody_is_left(server: &Server) {
    eventually("nobody is blocked", || {
        let left =
            ["waiters", "blocked_clients", "marked", "held_back"].map(|name| server.gauge(name));
        if left == [0; 4] { Ok(()) } else { Err(left) }
    });
}

#[test]
fn a_request_beyond_max_waiters_is_refused_and_not_queued() {
    let server = Server::builder().module_arg("max-waiters", "2").start();
    let mut a = server.connect();
    for key in ["k1", "k2"] {
        cmd!(a, "LOCK.ACQUIRE", key, "a", 60_000);
    }
    let mut b = waiter!(server, "LOCK.ACQUIRE", "k1", "b", 60_000, "WAIT", 0);
    let c = waiter!(server, "LOCK.ACQUIRE", "k2", "c", 60_000, "WAIT", 0);
    for key in ["k1", "k2"] {
        let error = try_cmd!(a, "LOCK.ACQUIRE", key, "d", 60_000, "WAIT", 0).unwrap_err();
        assert!(error.starts_with("MAXWAITERS "), "{error}");
    }
    assert_eq!(server.gauge("waiters"), 2);
    assert_eq!(queue_of(&mut a, "k1"), ["b"]);
    // Requests without a wait are allowed, and so is a request that is granted at once.
    assert!(is_nil(&cmd!(a, "LOCK.ACQUIRE", "k1", "d", 60_000)));
    int(&cmd!(a, "LOCK.ACQUIRE", "k1", "a", 60_000, "WAIT", 0));
    int(&cmd!(a, "LOCK.ACQUIRE", "free", "d", 60_000, "WAIT", 0));
    // When a waiter leaves, another may wait.
    drop(c);
    eventually("c has left", || server.gauge("waiters") == 1);
    let mut d = waiter!(server, "LOCK.ACQUIRE", "k1", "d", 60_000, "WAIT", 0);
    cmd!(a, "LOCK.RELEASE", "k1", "a", "ALL");
    granted(&mut b);
    cmd!(a, "LOCK.RELEASE", "k1", "b");
    granted(&mut d);
}

#[test]
fn a_deadlock_is_refused_before_max_waiters() {
    let server = Server::builder().module_arg("max-waiters", "1").start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "k1", "a", 60_000);
    cmd!(conn, "LOCK.ACQUIRE", "k2", "b", 60_000);
    let _a = waiter!(server, "LOCK.ACQUIRE", "k2", "a", 60_000, "WAIT", 0);
    let error = try_cmd!(conn, "LOCK.ACQUIRE", "k1", "b", 60_000, "WAIT", 0).unwrap_err();
    assert!(error.starts_with("DEADLOCK "), "{error}");
}

#[test]
fn with_max_waiters_0_every_waiting_request_is_refused() {
    let server = Server::builder().module_arg("max-waiters", "0").start();
    let mut conn = server.connect();
    int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000, "WAIT", 0));
    let error = try_cmd!(conn, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0).unwrap_err();
    assert!(error.starts_with("MAXWAITERS "), "{error}");
    cmd!(conn, "CONFIG", "SET", "lock.max-waiters", 1);
    let _b = waiter!(server, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
}

#[test]
fn a_lower_bound_does_not_end_existing_waits() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
    let mut b = waiter!(server, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
    cmd!(conn, "CONFIG", "SET", "lock.max-waiters", 0);
    cmd!(conn, "LOCK.RELEASE", "key", "a");
    granted(&mut b);
}

/// `a` holds `key`, and many wait for it.
fn crowd(server: &Server, wait: u64) -> Vec<Conn> {
    cmd!(server.connect(), "LOCK.ACQUIRE", "key", "a", 3_600_000);
    let asking = (0..many()).map(|n| command!("LOCK.ACQUIRE key w{n} 3600000 WAIT {wait}"));
    server.waiters(asking)
}

#[test]
fn very_many_waiters_of_one_lock_are_served_one_by_one() {
    let (_turn, server) = for_many();
    let mut waiting = crowd(&server, 0);
    answers_meanwhile(&server, || {
        let mut conn = server.connect();
        cmd!(conn, "LOCK.RELEASE", "key", "a");
        for (n, waiter) in waiting.iter_mut().enumerate() {
            granted(waiter);
            cmd!(conn, "LOCK.RELEASE", "key", format!("w{n}"));
        }
    });
    nobody_is_left(&server);
    assert_eq!(server.gauge("total_handoffs"), many() as i64);
    assert_eq!(server.gauge("locks"), 0);
}

#[test]
fn very_many_waiters_of_one_lock_that_disconnect_at_once_are_forgotten() {
    let (_turn, server) = for_many();
    let waiting = crowd(&server, 0);
    answers_meanwhile(&server, || {
        drop(waiting);
        nobody_is_left(&server);
    });
    assert_eq!(server.gauge("holders"), 1);
}

#[test]
fn very_many_waiters_of_one_lock_that_are_killed_at_once_are_forgotten() {
    let (_turn, server) = for_many();
    let waiting = crowd(&server, 0);
    let mut conn = server.connect();
    let newest = conn.client_id();
    let kills: Vec<_> = waiting
        .iter()
        .map(|waiter| command!("CLIENT", "KILL", "ID", waiter.client_id()))
        .collect();
    assert!(waiting.iter().all(|waiter| waiter.client_id() < newest));
    answers_meanwhile(&server, || {
        conn.pipeline(&kills);
        nobody_is_left(&server);
    });
    assert_eq!(server.gauge("holders"), 1);
}

#[test]
fn very_many_waits_that_end_together_all_get_null() {
    let (_turn, server) = for_many();
    // Long enough for all to be queued before the first one's end.
    let mut waiting = crowd(&server, 0);
    for waiter in &waiting {
        cmd!(server.connect(), "CLIENT", "UNBLOCK", waiter.client_id());
    }
    for waiter in &mut waiting {
        assert!(is_nil(&waiter.recv()));
    }
    nobody_is_left(&server);
    // Repeated over existing connections, they all end at almost the same moment.
    for (n, waiter) in waiting.iter_mut().enumerate() {
        waiter.submit(&command!("LOCK.ACQUIRE key w{n} 60000 WAIT 2000"));
    }
    answers_meanwhile(&server, || {
        for waiter in &mut waiting {
            assert!(is_nil(&waiter.recv()));
        }
    });
    nobody_is_left(&server);
    assert_eq!(server.gauge("total_timeouts"), many() as i64);
    assert_eq!(server.gauge("holders"), 1);
}

#[test]
fn very_many_readers_are_let_in_together() {
    let (_turn, server) = for_many();
    cmd!(server.connect(), "LOCK.ACQUIRE", "key", "a", 60_000);
    let asking =
        (0..many()).map(|n| command!("LOCK.RLOCK", "key", format!("r{n}"), 3_600_000, "WAIT", 0));
    let mut waiting = server.waiters(asking);
    answers_meanwhile(&server, || {
        cmd!(server.connect(), "LOCK.RELEASE", "key", "a");
        for waiter in &mut waiting {
            granted(waiter);
        }
    });
    assert_eq!(server.gauge("holders"), many() as i64);
    nobody_is_left(&server);
}

/// As many locks, each held by `a` for `lease` ms and waited for by one.
fn many_locks(server: &Server, lease: u64) -> Vec<Conn> {
    let mut conn = server.connect();
    let takes: Vec<_> = (0..many())
        .map(|n| command!("LOCK.ACQUIRE", format!("key{n}"), "a", lease))
        .collect();
    for reply in conn.pipeline(&takes) {
        reply.unwrap();
    }
    let asking = (0..many()).map(|n| command!("LOCK.ACQUIRE key{n} w{n} 3600000 WAIT 0"));
    server.waiters(asking)
}

#[test]
fn very_many_locks_emptied_at_once_let_every_waiter_in() {
    let (_turn, server) = for_many();
    let mut waiting = many_locks(&server, 3_600_000);
    answers_meanwhile(&server, || {
        cmd!(server.connect(), "FLUSHALL");
        for waiter in &mut waiting {
            granted(waiter);
        }
    });
    nobody_is_left(&server);
    assert_eq!(server.gauge("holders"), many() as i64);
}

#[test]
fn very_many_leases_that_end_together_let_every_waiter_in() {
    let (_turn, server) = for_many();
    let mut waiting = many_locks(&server, 3_600_000);
    let mut conn = server.connect();
    // All are waiting by now, so the leases can be short: a lock with a short lease is restored over each key.
    int(&cmd!(conn, "LOCK.ACQUIRE", "short", "x", 1_000));
    let payload = bytes(&cmd!(conn, "DUMP", "short"));
    let restores: Vec<_> = (0..many())
        .map(|n| command!("RESTORE", format!("key{n}"), 0, &payload, "REPLACE"))
        .collect();
    for reply in conn.pipeline(&restores) {
        reply.unwrap();
    }
    answers_meanwhile(&server, || {
        for waiter in &mut waiting {
            granted(waiter);
        }
    });
    nobody_is_left(&server);
    assert_eq!(server.gauge("total_handoffs"), many() as i64);
}

#[test]
fn very_many_waiters_of_as_many_locks_that_disconnect_at_once_are_forgotten() {
    let (_turn, server) = for_many();
    let waiting = many_locks(&server, 3_600_000);
    answers_meanwhile(&server, || {
        drop(waiting);
        nobody_is_left(&server);
    });
    assert_eq!(server.gauge("holders"), many() as i64);
}
