//! How much memory the table of locks takes, and when it frees memory.

use mortise_harness::redis::Cmd;
use mortise_harness::{Conn, Server, cmd, command, eventually, int};

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
fn a_crowd_of_released_locks_frees_its_memory_though_one_stays_held() {
    const ALL: usize = 200_000;
    let (server, mut conn) = Server::start_connected();
    let before = used(&server);
    send_all(&mut conn, ALL, |n| {
        command!("LOCK.ACQUIRE lock-{n} a 600000")
    });
    assert!(used(&server) > before + ALL as u64 * 100);
    send_all(&mut conn, ALL - 1, |n| command!("LOCK.RELEASE lock-{n} a"));
    assert_eq!(server.gauge("locks"), 1);
    // The server also shrinks its own table step by step.
    eventually("the memory is freed", || used(&server) < before + 4 * MIB);
}

/// So many that a ring for each would show. Redis 8 needs 3.5 GB and seconds of start-up for ten times as many.
const DATABASES: usize = 100_000;

fn server_of_many_databases() -> Server {
    let databases = DATABASES.to_string();
    Server::builder().config("databases", &databases).start()
}

#[test]
fn a_first_lock_in_the_last_of_100_000_databases_takes_no_more_than_in_the_first() {
    let server = server_of_many_databases();
    let mut conn = server.connect();
    cmd!(conn, "SELECT 0");
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    let before = used(&server);
    cmd!(conn, "SELECT", DATABASES - 1);
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    assert!(used(&server) < before + MIB);
    assert_eq!(server.gauge("locks"), 2);
    cmd!(conn, "FLUSHALL");
    eventually("the memory is freed", || used(&server) < before + MIB);
    assert_eq!(server.gauge("locks"), 0);
}

#[test]
fn locks_in_the_last_databases_end_and_swap_like_any_others() {
    let server = server_of_many_databases();
    let mut conn = server.connect();
    let (last, other) = (DATABASES - 1, DATABASES / 2);
    cmd!(conn, "SELECT {last}");
    cmd!(conn, "LOCK.ACQUIRE short a 300");
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    let before = used(&server);
    cmd!(conn, "SWAPDB {last} {other}");
    cmd!(conn, "SELECT {other}");
    assert_eq!(int(&cmd!(conn, "COPY key copy DB {last}")), 1);
    cmd!(conn, "SWAPDB {last} 3");
    eventually("the short lease is over", || {
        int(&cmd!(conn, "EXISTS short")) == 0
    });
    assert_eq!(server.gauge("locks"), 2);
    cmd!(conn, "FLUSHDB");
    assert_eq!(server.gauge("locks"), 1);
    cmd!(conn, "SELECT 3");
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE copy a")), 0);
    assert!(used(&server) < before + MIB);
}

#[test]
fn ten_thousand_databases_with_one_lock_take_little_more_than_one_with_ten_thousand() {
    const USED: usize = 10_000;
    let (server, mut conn) = Server::configured("databases 20000");
    let strings = used(&server);
    let select = |n: usize| command!("SELECT", n / 2);
    send_all(&mut conn, 2 * USED, |n| match n % 2 {
        0 => select(n),
        _ => command!("SET key a PX 600000"),
    });
    let before = used(&server);
    let strings = before - strings;
    // At once: some servers free memory in the background otherwise.
    cmd!(conn, "FLUSHALL SYNC");
    let before = used(&server);
    send_all(&mut conn, 2 * USED, |n| match n % 2 {
        0 => select(n),
        _ => command!("LOCK.ACQUIRE key a 600000"),
    });
    // A ring for each would be 330 MB.
    let locks = used(&server) - before;
    assert!(
        locks < strings + 1_000 * USED as u64,
        "{locks} bytes, strings take {strings}"
    );
    assert_eq!(server.gauge("locks"), USED as i64);
}
