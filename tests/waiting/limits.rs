//! Requests that wait for their limit.

use mortise_harness::{
    Conn, Server, cmd, granted, holders_of, int, is_nil, lock_info, mail, queue, queue_of, queued,
    waiter,
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
