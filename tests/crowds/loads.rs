//! A load of many locks: the module checks them afterwards, and no client waits for that.

use mortise_harness::{Server, cmd, command, granted, int, send, waiter};

use crate::{MANY, PATIENCE, alone, assert_never_long, await_gauge, run_many, server};

/// So many that checking them all takes a while.
const LOCKS: usize = 4 * MANY;

fn held_locks() -> Server {
    let server = server().start();
    let mut conn = server.connect();
    let held = (0..LOCKS).map(|n| command!("LOCK.ACQUIRE key:{n} a 600000"));
    run_many(&mut conn, held, |token| assert!(int(&token) > 0));
    server
}

#[test]
fn a_hand_off_does_not_wait_until_all_loaded_locks_have_been_checked() {
    let _turn = alone();
    let server = held_locks();
    let mut conn = server.connect();
    // On a busy machine the check may come too late, but not in every attempt.
    let seen = (0..5).any(|_| {
        // A reload takes longer than this, so the lease is over when it ends.
        cmd!(conn, "LOCK.ACQUIRE urgent a 200");
        let mut waiter = waiter!(server, "LOCK.ACQUIRE urgent b 60000 WAIT 0");
        send!(conn, "DEBUG RELOAD");
        conn.recv_within(PATIENCE)
            .expect("reloaded")
            .expect("reloaded");
        granted(&mut waiter);
        let left = server.gauge("marked");
        cmd!(conn, "LOCK.RELEASE urgent b");
        left > 0
    });
    assert!(seen, "a hand-off came only after all were checked");
    await_gauge(&server, "marked", 0);
    assert_eq!(server.gauge("locks"), LOCKS as i64);
    assert_never_long(&server);
}
