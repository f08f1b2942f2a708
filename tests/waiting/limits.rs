//! Requests that wait for their limit. Which of them are granted is the core's to decide: `core/tests/rules/queues`.

use mortise_harness::{Server, cmd, granted, int, is_nil, lock_info, mail, queue, queued, waiter};

#[test]
fn a_request_whose_owner_comes_to_hold_is_granted_within_its_limit_or_gets_null() {
    let (server, mut conn) = Server::start_connected();
    int(&cmd!(conn, "LOCK.RLOCK pool a 60000 HOLDS 2"));
    cmd!(conn, "LOCK.RLOCK pool giver 60000");
    let mut fits = waiter!(server, "LOCK.RLOCK pool b 60000 HOLDS 2 LIMIT 4 WAIT 0");
    let mut too_many = waiter!(server, "LOCK.RLOCK pool b 60000 HOLDS 3 LIMIT 4 WAIT 0");
    // b now holds one. Two for b make four in all, which is within the limit; three do not.
    int(&cmd!(conn, "LOCK.PASS pool giver b 60000"));
    granted(&mut fits);
    assert!(is_nil(&too_many.recv()));
    assert_eq!(server.gauge("waiters"), 0);
}

#[test]
fn by_mail_a_request_can_be_repeated_with_a_larger_limit_and_a_denial_is_a_letter() {
    let (_server, mut conn) = Server::start_connected();
    int(&cmd!(conn, "LOCK.RLOCK pool a 60000 HOLDS 3"));
    queue!(conn, "box", "LOCK.RLOCK pool b 60000 LIMIT 3");
    let lock = lock_info(&mut conn, "pool").unwrap();
    let asked = &lock.queue[0];
    assert_eq!((asked.count, asked.limit, asked.keys), (1, 3, 1));
    queue!(conn, "box", "LOCK.RLOCK pool b 60000 LIMIT 4");
    assert_eq!(mail!(conn, "box WAIT 1000").results(), [("b", "granted")]);
    // A request whose owner comes to hold, while no more permits are free.
    let more = cmd!(
        conn,
        "LOCK.RLOCK pool c 60000 HOLDS 2 LIMIT 4 WAIT 0 MAIL more"
    );
    queued(&more);
    int(&cmd!(conn, "LOCK.PASS pool b c 60000"));
    assert_eq!(mail!(conn, "more WAIT 1000").results(), [("c", "denied")]);
}
