//! Readers of one lock whose leases end together.

use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::{
    Server, array, assert_error, assert_same_data, cmd, command, granted, hold_of, holders_of,
    info, int, is_nil, lock_info, send, text, wait_for_sync, waiter,
};

use crate::{MANY, alone, assert_never_long, await_gauge, run_many, server, server_alone};

/// Long enough for all of them to acquire, on an idle machine.
const LEASE: Duration = Duration::from_millis(MANY as u64 / 5);

/// How long a command may take.
const DELAY: Duration = Duration::from_secs(2);

/// Makes the crowd read `key` until about the same moment.
fn let_in(server: &Server) -> Instant {
    let mut conn = server.connect();
    let since = Instant::now();
    run_many(&mut conn, (0..MANY).map(|_| command!("PING")), drop);
    let over = Instant::now() + LEASE.max(15 * since.elapsed());
    let lease = |_| u64::try_from(over.duration_since(Instant::now()).as_millis()).unwrap();
    let readers = (0..MANY).map(|n| {
        let owner = format!("0f8fad5b-d9cb-469f-a165-7086{n:08}");
        command!("LOCK.RLOCK", "key", owner, lease(n))
    });
    run_many(&mut conn, readers, |token| assert!(int(&token) > 0));
    over
}

/// Freezes the server until all of them have ended.
fn end(server: &Server, over: Instant) {
    server.stop_signal();
    thread::sleep(over.saturating_duration_since(Instant::now()) + DELAY);
    server.cont_signal();
}

#[test]
fn readers_that_end_together_free_the_lock_at_once_and_are_dropped_a_few_at_a_time() {
    let _turn = alone();
    let server = server().start();
    let replica = crate::server().replica_of(&server).start();
    wait_for_sync(&server, &replica);
    let over = let_in(&server);
    let mut writer = waiter!(server, "LOCK.ACQUIRE key writer 60000 WAIT 0");
    end(&server, over);
    granted(&mut writer);
    // The waiter is granted before the last of them is counted.
    let mut conn = server.connect();
    assert_eq!(holders_of(&mut conn, "key"), ["writer"]);
    await_gauge(&server, "total_expiries", MANY as i64);
    wait_for_sync(&server, &replica);
    assert_same_data(&server, &replica);
    for server in [&server, &replica] {
        assert_eq!(server.gauge("holders"), 1);
        assert_never_long(server);
    }
}

#[test]
fn while_others_still_hold_every_command_ignores_readers_that_have_ended() {
    let (_turn, server, mut conn) = server_alone();
    for owner in ["left", "too"] {
        cmd!(conn, "LOCK.RLOCK key {owner} 600000");
    }
    let over = let_in(&server);
    let owner = format!("0f8fad5b-d9cb-469f-a165-7086{:08}", MANY - 1);
    let last = hold_of(&mut conn, "key", &owner).expect("its lease is not over");
    server.stop_signal();
    thread::sleep(over.saturating_duration_since(Instant::now()) + DELAY);
    // By now only a few can have been dropped, and not the last one.
    let token = last.token;
    send!(conn, "LOCK.GUARD key {owner} {token} SET data late");
    send!(conn, "INFO lock");
    server.cont_signal();
    assert_error(conn.try_recv(), "NOTHELD ");
    let there: usize = info(&conn.recv())["lock_holders"].parse().unwrap();
    assert!(there > MANY / 2, "{there} are still there");
    let lock = lock_info(&mut conn, "key").expect("two hold");
    assert_eq!(lock.holders, 2);
    assert_eq!(holders_of(&mut conn, "key"), ["left", "too"]);
    assert!(is_nil(&cmd!(conn, "LOCK.RENEW key {owner} 60000")));
    assert!(is_nil(&cmd!(conn, "LOCK.RELEASE key {owner}")));
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE key left 60000")));
    int(&cmd!(conn, "LOCK.RLOCK key {owner} 600000"));
    assert_eq!(holders_of(&mut conn, "key").len(), 3);
    await_gauge(&server, "holders", 3);
    assert_eq!(server.gauge("total_expiries"), MANY as i64);
    cmd!(conn, "LOCK.RELEASE key too");
    cmd!(conn, "LOCK.RELEASE key {owner}");
    int(&cmd!(conn, "LOCK.ACQUIRE key left 60000"));
    assert_never_long(&server);
}

#[test]
fn events_of_readers_that_end_together_belong_to_their_database() {
    const READERS: usize = 3_000;
    let server = Server::builder()
        .config("notify-keyspace-events", "Ed")
        .start();
    let (mut conn, mut ear) = (server.connect(), server.connect());
    cmd!(ear, "PSUBSCRIBE __keyevent@*__:lock.expire");
    cmd!(conn, "SELECT 3");
    let over = Instant::now() + Duration::from_secs(5);
    let readers = (0..READERS).map(|n| {
        let left = over.saturating_duration_since(Instant::now()).as_millis();
        let lease = left.max(1);
        command!("LOCK.RLOCK key r{n} {lease}")
    });
    run_many(&mut conn, readers, |token| assert!(int(&token) > 0));
    server.stop_signal();
    thread::sleep(over.saturating_duration_since(Instant::now()) + Duration::from_millis(100));
    server.cont_signal();
    for _ in 0..READERS {
        let message = ear.recv();
        let [_, _, channel, key] = array(&message) else {
            panic!("{message:?}");
        };
        assert_eq!(text(channel), "__keyevent@3__:lock.expire");
        assert_eq!(text(key), "key");
    }
}
