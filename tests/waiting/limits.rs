//! Requests that wait for their limit.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::{
    Conn, Dice, Server, cmd, granted, holders_of, int, is_nil, lock_info, mail, queue, queue_of,
    queued, send, waiter,
};

/// A blocked request for `holds` of `limit` permits.
macro_rules! wants {
    ($server:expr, $owner:expr, $holds:expr, $limit:expr) => {
        waiter!(
            $server,
            "LOCK.RLOCK",
            "pool",
            $owner,
            60_000,
            "HOLDS",
            $holds,
            "LIMIT",
            $limit,
            "WAIT",
            0
        )
    };
}

fn take(conn: &mut Conn, owner: &str, holds: i64) {
    int(&cmd!(conn, "LOCK.RLOCK pool {owner} 60000 HOLDS {holds}"));
}

#[test]
fn nobody_overtakes_a_request_that_waits_for_its_limit() {
    let server = Server::start();
    let mut conn = server.connect();
    take(&mut conn, "a", 2);
    let mut large = wants!(server, "large", 3, 3);
    // Two of three permits are free for each of these, and a reader without a limit would be compatible, too.
    let mut small = wants!(server, "small", 1, 3);
    let mut any = waiter!(server, "LOCK.RLOCK", "pool", "any", 60_000, "WAIT", 0);
    let none = cmd!(conn, "LOCK.RLOCK", "pool", "now", 60_000, "LIMIT", 9);
    assert!(is_nil(&none));
    assert_eq!(queue_of(&mut conn, "pool"), ["large", "small", "any"]);
    cmd!(conn, "LOCK.RELEASE", "pool", "a", "ALL");
    granted(&mut large);
    assert_eq!(queue_of(&mut conn, "pool"), ["small", "any"]);
    cmd!(conn, "LOCK.RELEASE", "pool", "large");
    granted(&mut small);
    granted(&mut any);
    assert_eq!(holders_of(&mut conn, "pool"), ["any", "large", "small"]);
}

#[test]
fn a_released_permit_is_granted_to_the_head_at_once() {
    let server = Server::start();
    let mut conn = server.connect();
    take(&mut conn, "a", 3);
    let mut waiters: Vec<Conn> = (0..3)
        .map(|n| wants!(server, format!("w{n}"), 1, 3))
        .collect();
    for (left, waiter) in (0..3).rev().zip(&mut waiters) {
        assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "pool", "a")), left);
        granted(waiter);
    }
    assert_eq!(server.gauge("total_handoffs"), 3);
}

#[test]
fn a_holder_that_lowers_its_count_frees_permits() {
    let server = Server::start();
    let mut conn = server.connect();
    take(&mut conn, "a", 3);
    let mut waiter = wants!(server, "b", 2, 3);
    take(&mut conn, "a", 1);
    granted(&mut waiter);
}

#[test]
fn a_writer_drains_the_pool_and_the_next_in_the_queue_fill_it_up_to_the_limit() {
    let server = Server::start();
    let mut conn = server.connect();
    take(&mut conn, "a", 1);
    let mut writer = waiter!(server, "LOCK.WLOCK", "pool", "w", 60_000, "WAIT", 0);
    let mut readers: Vec<Conn> = (0..4)
        .map(|n| wants!(server, format!("r{n}"), 1, 3))
        .collect();
    cmd!(conn, "LOCK.RELEASE", "pool", "a");
    granted(&mut writer);
    cmd!(conn, "LOCK.RELEASE", "pool", "w");
    readers[..3].iter_mut().for_each(|reader| {
        granted(reader);
    });
    assert_eq!(queue_of(&mut conn, "pool"), ["r3"]);
    cmd!(conn, "LOCK.RELEASE", "pool", "r1");
    granted(&mut readers[3]);
}

#[test]
fn a_request_whose_owner_comes_to_hold_is_granted_within_its_limit_or_gets_null() {
    let server = Server::start();
    let mut conn = server.connect();
    take(&mut conn, "a", 2);
    cmd!(conn, "LOCK.RLOCK", "pool", "giver", 60_000);
    let mut fits = wants!(server, "b", 2, 4);
    let mut too_many = wants!(server, "b", 3, 4);
    // b now holds one. Two for b make four in all, which is within the limit; three do not.
    int(&cmd!(conn, "LOCK.PASS", "pool", "giver", "b", 60_000));
    granted(&mut fits);
    assert!(is_nil(&too_many.recv()));
    assert_eq!(server.gauge("waiters"), 0);
}

#[test]
fn by_mail_a_request_can_be_repeated_with_a_larger_limit_and_a_denial_is_a_letter() {
    let server = Server::start();
    let mut conn = server.connect();
    take(&mut conn, "a", 3);
    queue!(conn, "box", "LOCK.RLOCK", "pool", "b", 60_000, "LIMIT", 3);
    let lock = lock_info(&mut conn, "pool").unwrap();
    let asked = &lock.queue[0];
    assert_eq!((asked.count, asked.limit, asked.keys), (1, 3, 1));
    queue!(conn, "box", "LOCK.RLOCK", "pool", "b", 60_000, "LIMIT", 4);
    let mail = mail!(conn, "box", "WAIT", 1_000);
    let letter = mail.only();
    assert_eq!((&*letter.owner, &*letter.result), ("b", "granted"));
    // A request whose owner comes to hold, while no more permits are free.
    let more = cmd!(
        conn,
        "LOCK.RLOCK pool c 60000 HOLDS 2 LIMIT 4 WAIT 0 MAIL more"
    );
    queued(&more);
    int(&cmd!(conn, "LOCK.PASS", "pool", "b", "c", 60_000));
    let mail = mail!(conn, "more", "WAIT", 1_000);
    let letter = mail.only();
    assert_eq!((&*letter.owner, &*letter.result), ("c", "denied"));
}

#[test]
fn many_permits_that_end_together_admit_every_waiter_that_fits() {
    let server = Server::start();
    let mut conn = server.connect();
    const CROWD: i64 = 20_000;
    for n in 0..CROWD {
        send!(conn, "LOCK.RLOCK pool r{n} 3000 LIMIT {CROWD}");
    }
    for _ in 0..CROWD {
        assert!(int(&conn.recv()) > 0);
    }
    let mut whole = wants!(server, "whole", CROWD, CROWD);
    let mut half = wants!(server, "half", CROWD, 2 * CROWD);
    granted(&mut whole);
    granted(&mut half);
    assert_eq!(queue_of(&mut conn, "pool"), [""; 0]);
}

/// The permits of a pool that holders believe to have, counted together.
#[derive(Default)]
struct Pool {
    inside: i64,
    most: i64,
    entered: usize,
}

/// A client that acquires, holds, lowers and releases permits until the test ends.
fn contend(server: &Server, pool: &Mutex<Pool>, number: u64, until: Instant) {
    const LIMIT: i64 = 10;
    let mut conn = server.connect();
    let mut dice = Dice::new(number);
    for round in 0.. {
        if Instant::now() > until {
            return;
        }
        let owner = format!("{number}:{round}");
        let weight = 1 + dice.roll(4) as i64;
        cmd!(
            conn,
            "LOCK.RLOCK pool {owner} 60000 HOLDS {weight} LIMIT {LIMIT} WAIT 0"
        );
        let mut inside = pool.lock().unwrap();
        inside.inside += weight;
        inside.most = inside.most.max(inside.inside);
        inside.entered += 1;
        assert!(inside.inside <= LIMIT, "{} inside", inside.inside);
        drop(inside);
        for left in (0..weight).rev() {
            pool.lock().unwrap().inside -= 1;
            assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "pool", &owner)), left);
        }
    }
}

#[test]
fn holders_never_have_more_permits_together_than_the_limit() {
    let server = Server::start();
    let pool = Mutex::default();
    let until = Instant::now() + Duration::from_secs(2);
    thread::scope(|scope| {
        for number in 0..12 {
            let (server, pool) = (&server, &pool);
            scope.spawn(move || contend(server, pool, number, until));
        }
    });
    let pool = pool.into_inner().unwrap();
    assert_eq!(pool.inside, 0);
    assert!(pool.most > 7, "the pool is filled: {}", pool.most);
    assert!(pool.entered > 100, "{}", pool.entered);
    assert_eq!(server.gauge("locks"), 0);
}
