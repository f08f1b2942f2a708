//! Wall clocks that step. Leases do not depend on them; Redis's own time-outs do.

use std::thread;
use std::time::{Duration, Instant};

use super::millis;
use mortise_harness::ClockStep::{Back, Forward};
use mortise_harness::{
    Builder, ClockStep, Conn, Server, Shutdown, cmd, eventually, granted, hold_of, int, is_nil,
    refused, server_micros, text, try_cmd, waiter, wall_micros,
};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const STEPS: [ClockStep; 4] = [Forward(HOUR), Back(HOUR), Forward(DAY), Back(DAY)];

fn shimmed() -> Builder {
    Server::builder().clock_shim()
}

/// Seconds since 1970 by the server's wall clock.
fn server_time(conn: &mut Conn) -> i64 {
    i64::try_from(server_micros(conn) / 1_000_000).unwrap()
}

/// What is left of a lease, and the bounds of that for a lease of `lease` ms that began at `since`.
#[track_caller]
fn assert_runs_on(conn: &mut Conn, key: &str, lease: i64, since: Instant) {
    // Read before the command, for the most that may be left; the least is computed after the reply.
    let most = lease - millis(since) + 1;
    let left = hold_of(conn, key, "a").expect("a live lease").lease;
    let least = lease - millis(since) - 100;
    assert!(
        least <= left && left <= most + 100,
        "{left} ms left of {lease}, expected {least} to {most}"
    );
}

#[test]
fn the_shim_steps_the_wall_clock_of_the_server_and_of_the_module_only() {
    let server = shimmed().start();
    let mut conn = server.connect();
    let here = || wall_micros() / 1_000_000;
    assert!((server_time(&mut conn) - here()).abs() <= 2);
    server.step_clock(Forward(HOUR));
    eventually("the server has seen the step", || {
        (server_time(&mut conn) - here() - 3_600).abs() <= 2
    });
    // Tokens come from the wall clock, as the module reads it.
    let token = int(&cmd!(conn, "LOCK.ACQUIRE key a 1000"));
    assert!((token - wall_micros() - 3_600_000_000).abs() < 2_000_000);
    server.step_clock(Back(HOUR + HOUR));
    eventually("the server has seen the step back", || {
        (server_time(&mut conn) - here() + 3_600).abs() <= 2
    });
}

#[test]
fn no_step_of_the_wall_clock_ends_or_extends_a_lease() {
    let server = shimmed().start();
    let mut conn = server.connect();
    let since = Instant::now();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE key a 600000"));
    for step in STEPS {
        server.step_clock(step);
        assert_runs_on(&mut conn, "key", 600_000, since);
        assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE key b 1000")));
        // Long enough for every sweep.
        std::thread::sleep(Duration::from_millis(250));
        assert_runs_on(&mut conn, "key", 600_000, since);
    }
    assert_eq!(hold_of(&mut conn, "key", "a").unwrap().token, token);
    assert_eq!(server.gauge("total_expiries"), 0);
}

#[test]
fn a_lease_goes_on_while_the_machine_is_suspended() {
    let server = shimmed().start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE key a 600000");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 600000 WAIT 0");
    server.suspend(Duration::from_secs(400));
    let left = hold_of(&mut conn, "key", "a")
        .expect("it has 200 s left")
        .lease;
    assert!((100_000..=200_000).contains(&left), "{left} ms left");
    server.suspend(Duration::from_secs(200));
    assert!(is_nil(&cmd!(conn, "LOCK.RENEW key a 600000")));
    granted(&mut b);
}

/// The server fires all timers that were due when it began to fire. Started during a step back, a timer is due at
/// once, again and again, until the clock has caught up.
#[test]
fn a_server_whose_clock_steps_back_within_a_timer_goes_on() {
    let server = shimmed().start();
    let mut conn = server.connect();
    for step in [Back(HOUR), Back(Duration::from_millis(200)), Back(DAY)] {
        server.step_clock_within_timer(step);
        assert_eq!(text(&cmd!(conn, "PING")), "PONG");
        cmd!(conn, "LOCK.ACQUIRE key a 50");
        cmd!(conn, "LOCK.ACQUIRE key b 50 WAIT 0");
    }
}

/// A step back puts off the timers from before. If the clock then steps forward while the server fires a timer, the server goes on waiting for those,
/// for as long as it had to before, and new timers come later. The rounds differ in what happens between which of the module's timers.
#[test]
fn a_server_whose_clock_steps_twice_at_any_moment_hands_off_in_time() {
    let server = shimmed().config("appendonly", "yes").start();
    let (mut conn, mut other) = (server.connect(), server.connect());
    for n in 0..50 {
        let since = Instant::now();
        cmd!(conn, "LOCK.MACQUIRE a 250 2 x y");
        let mut one = waiter!(server, "LOCK.ACQUIRE y b 200 WAIT 0");
        let mut both = waiter!(server, "LOCK.MACQUIRE c 200 2 x y WAIT 0");
        let forward = Forward(Duration::from_millis(1 + n * 7_919 % 60_000));
        let back = Back(Duration::from_millis(1 + n * 104_729 % 90_000));
        let (first, second) = match n % 2 {
            0 => (forward, back),
            _ => (back, forward),
        };
        thread::sleep(Duration::from_millis(n * 37 % 150));
        match n % 4 {
            0 | 1 => server.step_clock(first),
            _ => server.step_clock_within_timer(first),
        }
        thread::sleep(Duration::from_millis(n * 13 % 120));
        match n % 3 {
            0 => server.step_clock(second),
            _ => server.step_clock_within_timer(second),
        }
        for _ in 0..2 {
            cmd!(other, "SWAPDB 0 1");
        }
        granted(&mut one);
        granted(&mut both);
        assert!(millis(since) < 3_000, "{first:?}, {second:?}");
        cmd!(conn, "FLUSHALL");
    }
}

/// How late an event was that was due `ms` after `since`.
#[track_caller]
fn assert_on_time(what: &str, since: Instant, ms: i64, step: ClockStep) {
    let late = millis(since) - ms;
    // An error of the step would be an hour.
    assert!(
        (-1..3_000).contains(&late),
        "{what}: {late} ms late over {step:?}"
    );
}

#[test]
fn at_every_step_leases_and_waits_end_on_time_while_set_nx_px_ends_early_or_late() {
    let server = shimmed().start();
    let mut conn = server.connect();
    for step in STEPS {
        cmd!(conn, "SET plain a NX PX 60000");
        cmd!(conn, "LOCK.ACQUIRE held a 60000");
        let asked = Instant::now();
        let mut limited = waiter!(server, "LOCK.ACQUIRE held b 60000 WAIT 3000");
        let since = Instant::now();
        cmd!(conn, "LOCK.ACQUIRE ends a 2500");
        let mut next = waiter!(server, "LOCK.ACQUIRE ends b 60000 WAIT 0");
        server.step_clock(step);
        match step {
            Forward(_) => eventually("SET NX PX has lost its key", || {
                !is_nil(&cmd!(conn, "SET plain b NX PX 60000"))
            }),
            Back(by) => eventually("SET NX PX keeps its key for longer than a minute", || {
                int(&cmd!(conn, "PTTL plain")) > by.as_millis() as i64
            }),
        }
        granted(&mut next);
        assert_on_time("the hand-off", since, 2_500, step);
        assert!(is_nil(&limited.recv()), "the wait is over");
        assert_on_time("the end of the wait", asked, 3_000, step);
        // The lock that `SET NX PX` would have lost is still held.
        assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE held c 60000")));
        for (key, owner) in [("held", "a"), ("ends", "b")] {
            assert_eq!(int(&cmd!(conn, "LOCK.RELEASE {key} {owner}")), 0);
        }
        cmd!(conn, "DEL plain");
    }
}

fn run(server: &Server, line: &str) {
    cmd!(server.connect(), "{line}");
}

/// Acquires and releases, checks that the token exceeds `last`, and returns it.
#[track_caller]
fn next_token(server: &Server, last: i64) -> i64 {
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE tokens a 1000"));
    cmd!(conn, "LOCK.RELEASE tokens a");
    assert!(token > last, "{token} is not past {last}");
    token
}

#[test]
fn tokens_grow_whatever_happens_to_the_clock_the_keys_and_the_process() {
    type Blow = fn(&mut Server);
    let blows: [(&str, Blow); 9] = [
        ("FLUSHALL", |server| run(server, "FLUSHALL")),
        ("FLUSHDB", |server| run(server, "FLUSHDB")),
        ("SWAPDB", |server| run(server, "SWAPDB 0 1")),
        ("SIGKILL", |server| {
            server.sigkill();
            server.start_again();
        }),
        ("SHUTDOWN", |server| server.restart(Shutdown::AsConfigured)),
        ("BGREWRITEAOF", |server| server.rewrite()),
        ("SIGKILL again", |server| {
            server.sigkill();
            server.start_again();
        }),
        ("LOADAOF", |server| run(server, "DEBUG LOADAOF")),
        ("RELOAD", |server| run(server, "DEBUG RELOAD")),
    ];
    for preamble in ["yes", "no"] {
        let mut server = shimmed()
            .config("appendonly", "yes")
            .config("appendfsync", "always")
            .config("aof-use-rdb-preamble", preamble)
            .start();
        let mut last = next_token(&server, 0);
        for step in [Back(HOUR), Forward(DAY), Back(DAY), Back(DAY)] {
            for (name, blow) in blows {
                server.step_clock(step);
                last = next_token(&server, last);
                eprintln!("{name} after {step:?}, last {last}");
                blow(&mut server);
                last = next_token(&server, last);
            }
        }
    }
}

#[test]
fn tokens_grow_over_a_restart_from_an_rdb_file_with_the_clock_set_back() {
    let mut server = shimmed().start();
    let mut last = next_token(&server, 0);
    for flush in [false, true, false] {
        server.step_clock(Back(DAY));
        last = next_token(&server, last);
        if flush {
            cmd!(server.connect(), "FLUSHALL");
        }
        server.restart(Shutdown::Save);
        last = next_token(&server, last);
    }
}

#[test]
fn a_lease_goes_on_over_a_restart_with_the_clock_stepped_meanwhile() {
    for step in [Forward(HOUR), Back(HOUR)] {
        let mut server = shimmed().start();
        let since = Instant::now();
        cmd!(server.connect(), "LOCK.ACQUIRE key a 600000");
        server.shutdown(Shutdown::Save);
        server.step_clock(step);
        server.start_again();
        assert_runs_on(&mut server.connect(), "key", 600_000, since);
    }
}

#[test]
fn a_token_more_than_an_hour_ahead_of_the_servers_clock_is_refused() {
    let server = shimmed().start();
    let mut conn = server.connect();
    let ahead = wall_micros() + 2 * 3_600_000_000;
    refused!(conn, "ERR ", "LOCK.ACQUIRE key a 1000 FENCE {ahead}");
    server.step_clock(Forward(HOUR + HOUR));
    // Servers read the clock once a turn of their event loop.
    let token = eventually("the server has seen the step", || {
        try_cmd!(conn, "LOCK.ACQUIRE key a 1000 FENCE {ahead}")
    });
    assert!(int(&token) >= ahead);
}
