//! What the table of locks takes, and when it gives it back.

use mortise_harness::redis::Cmd;
use mortise_harness::{Conn, Server, command, eventually};

fn used(server: &Server) -> u64 {
    server.info("memory")["used_memory"].parse().unwrap()
}

const MIB: u64 = 1 << 20;

/// Sends `count` commands, a few thousand at a time.
fn send_all(conn: &mut Conn, count: usize, nth: impl FnMut(usize) -> Cmd + Copy) {
    let mut sent = 0;
    while sent < count {
        let batch: Vec<_> = (sent..count.min(sent + 5_000)).map(nth).collect();
        sent += batch.len();
        conn.pipeline(&batch);
    }
}

#[test]
fn what_a_crowd_of_locks_took_is_given_back_though_one_of_them_is_held_on() {
    const ALL: usize = 200_000;
    let server = Server::start();
    let mut conn = server.connect();
    let before = used(&server);
    send_all(&mut conn, ALL, |n| {
        command!("LOCK.ACQUIRE", format!("lock-{n}"), "a", 600_000)
    });
    assert!(used(&server) > before + ALL as u64 * 100);
    send_all(&mut conn, ALL - 1, |n| {
        command!("LOCK.RELEASE", format!("lock-{n}"), "a")
    });
    assert_eq!(server.gauge("locks"), 1);
    // The server makes its own table smaller, too, a step at a time.
    eventually("the memory is given back", || {
        let now = used(&server);
        match now < before + 4 * MIB {
            true => Ok(()),
            false => Err(format!("{before} bytes before, {now} now")),
        }
    });
}
