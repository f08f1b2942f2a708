//! A wall clock that steps back between the moment a timer is started that is to come at once and the moment it comes.
//! The server's timers go by that clock.

use std::thread;
use std::time::Duration;

use mortise_harness::ClockStep::Back;
use mortise_harness::{Server, bytes, cmd, command, eventually, granted, hold_of, waiter};

const HOUR: Duration = Duration::from_secs(3_600);

#[test]
fn a_step_back_in_the_turn_in_which_a_lock_is_restored_keeps_no_waiter_waiting() {
    let server = Server::builder().clock_shim().start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "restored", "a", 60_000);
    let payload = bytes(&cmd!(conn, "DUMP", "restored"));
    cmd!(conn, "DEL", "restored");
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
    let mut b = waiter!(server, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
    eventually("nothing is left to be done", || server.gauge("marked") == 0);

    cmd!(conn, "MULTI");
    cmd!(conn, "RESTORE", "restored", 0, payload);
    cmd!(conn, "DEBUG", "SLEEP", 1);
    conn.submit(&command!("EXEC"));
    // The server answers nobody while it sleeps, so that it does cannot be asked. Stepped too early or too late, the clock
    // does no harm.
    thread::sleep(Duration::from_millis(300));
    server.step_clock(Back(HOUR));
    conn.recv();

    cmd!(conn, "LOCK.RELEASE", "key", "a");
    let token = granted(&mut b);
    assert_eq!(hold_of(&mut conn, "key", "b").unwrap().token, token);
    eventually("the restored lock is counted", || {
        server.gauge("locks") == 2 && server.gauge("marked") == 0
    });
}
