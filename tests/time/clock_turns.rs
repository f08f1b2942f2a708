//! The wall clock steps back between the start of an immediate timer and its firing. The server's timers use
//! that clock.

use std::thread;
use std::time::Duration;

use mortise_harness::ClockStep::Back;
use mortise_harness::{Server, bytes, cmd, command, eventually, granted, hold_of, waiter};

const HOUR: Duration = Duration::from_secs(3_600);

#[test]
fn a_step_back_in_the_turn_of_a_restore_delays_no_waiter() {
    let (server, mut conn) = Server::builder().clock_shim().start_connected();
    cmd!(conn, "LOCK.ACQUIRE restored a 60000");
    let payload = bytes(&cmd!(conn, "DUMP restored"));
    cmd!(conn, "DEL restored");
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    server.await_gauge("marked", 0);

    cmd!(conn, "MULTI");
    cmd!(conn, "RESTORE", "restored", 0, payload);
    cmd!(conn, "DEBUG SLEEP 1");
    conn.submit(&command!("EXEC"));
    // The sleeping server replies to nothing, so the test cannot check that it sleeps. A step too early or too late does
    // no harm.
    thread::sleep(Duration::from_millis(300));
    server.step_clock(Back(HOUR));
    conn.recv();

    cmd!(conn, "LOCK.RELEASE key a");
    let token = granted(&mut b);
    assert_eq!(hold_of(&mut conn, "key", "b").unwrap().token, token);
    eventually("the restored lock is counted", || {
        server.gauge("locks") == 2 && server.gauge("marked") == 0
    });
}
