//! How many may wait, and what happens when very many do.
//!
//! `MORTISE_LONG=1` makes it ten thousand instead of two.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use mortise_harness::{
    Conn, Server, cmd, command, granted, int, is_long_run, is_nil, queue_of, refused, text, waiter,
};

fn many() -> usize {
    let wanted = if is_long_run() { 10_000 } else { 2_000 };
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
    for gauge in ["waiters", "blocked_clients", "marked", "held_back"] {
        server.await_gauge(gauge, 0);
    }
}

#[test]
fn a_request_beyond_max_waiters_is_refused_and_not_queued() {
    let (server, mut a) = Server::configured("lock.max-waiters 2");
    for key in ["k1", "k2"] {
        cmd!(a, "LOCK.ACQUIRE {key} a 60000");
    }
    let mut b = waiter!(server, "LOCK.ACQUIRE k1 b 60000 WAIT 0");
    let c = waiter!(server, "LOCK.ACQUIRE k2 c 60000 WAIT 0");
    for key in ["k1", "k2"] {
        refused!(a, "MAXWAITERS ", "LOCK.ACQUIRE {key} d 60000 WAIT 0");
    }
    assert_eq!(server.gauge("waiters"), 2);
    assert_eq!(queue_of(&mut a, "k1"), ["b"]);
    // Requests without a wait are allowed, and so is a request that is granted at once.
    assert!(is_nil(&cmd!(a, "LOCK.ACQUIRE k1 d 60000")));
    int(&cmd!(a, "LOCK.ACQUIRE k1 a 60000 WAIT 0"));
    int(&cmd!(a, "LOCK.ACQUIRE free d 60000 WAIT 0"));
    // When a waiter leaves, another may wait.
    drop(c);
    server.await_gauge("waiters", 1);
    let mut d = waiter!(server, "LOCK.ACQUIRE k1 d 60000 WAIT 0");
    cmd!(a, "LOCK.RELEASE k1 a ALL");
    granted(&mut b);
    cmd!(a, "LOCK.RELEASE k1 b");
    granted(&mut d);
}

#[test]
fn a_deadlock_is_refused_before_max_waiters() {
    let (server, mut conn) = Server::configured("lock.max-waiters 1");
    cmd!(conn, "LOCK.ACQUIRE k1 a 60000");
    cmd!(conn, "LOCK.ACQUIRE k2 b 60000");
    let _a = waiter!(server, "LOCK.ACQUIRE k2 a 60000 WAIT 0");
    refused!(conn, "DEADLOCK ", "LOCK.ACQUIRE k1 b 60000 WAIT 0");
}

#[test]
fn with_max_waiters_0_every_waiting_request_is_refused() {
    let (server, mut conn) = Server::configured("lock.max-waiters 0");
    int(&cmd!(conn, "LOCK.ACQUIRE key a 60000 WAIT 0"));
    refused!(conn, "MAXWAITERS ", "LOCK.ACQUIRE key b 60000 WAIT 0");
    cmd!(conn, "CONFIG SET lock.max-waiters 1");
    let _b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
}

#[test]
fn a_lower_bound_does_not_end_existing_waits() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    cmd!(conn, "CONFIG SET lock.max-waiters 0");
    cmd!(conn, "LOCK.RELEASE key a");
    granted(&mut b);
}

/// `a` holds `key`, and many wait for it.
fn crowd(server: &Server, wait: u64) -> Vec<Conn> {
    cmd!(server.connect(), "LOCK.ACQUIRE key a 3600000");
    let asking = (0..many()).map(|n| command!("LOCK.ACQUIRE key w{n} 3600000 WAIT {wait}"));
    server.waiters(asking)
}

#[test]
fn very_many_waiters_of_one_lock_are_served_one_by_one() {
    let (_turn, server) = for_many();
    let mut waiting = crowd(&server, 0);
    answers_meanwhile(&server, || {
        let mut conn = server.connect();
        cmd!(conn, "LOCK.RELEASE key a");
        for (n, waiter) in waiting.iter_mut().enumerate() {
            granted(waiter);
            cmd!(conn, "LOCK.RELEASE key w{n}");
        }
    });
    nobody_is_left(&server);
    assert_eq!(server.gauge("total_handoffs"), many() as i64);
    assert_eq!(server.gauge("locks"), 0);
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
fn very_many_waiters_that_disconnect_at_once_are_forgotten() {
    for crowd in [|server: &Server| crowd(server, 0), many_locks] {
        let (_turn, server) = for_many();
        let waiting = crowd(&server);
        let holders = server.gauge("holders");
        answers_meanwhile(&server, || {
            drop(waiting);
            nobody_is_left(&server);
        });
        assert_eq!(server.gauge("holders"), holders);
    }
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

/// As many locks, each held by `a` and waited for by one.
fn many_locks(server: &Server) -> Vec<Conn> {
    let mut conn = server.connect();
    let takes: Vec<_> = (0..many())
        .map(|n| command!("LOCK.ACQUIRE key{n} a 3600000"))
        .collect();
    for reply in conn.pipeline(&takes) {
        reply.unwrap();
    }
    let asking = (0..many()).map(|n| command!("LOCK.ACQUIRE key{n} w{n} 3600000 WAIT 0"));
    server.waiters(asking)
}
