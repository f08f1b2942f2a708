//! A waiting upgrade, whose owner holds to read. What one owner's requests in a queue get is the core's to decide: `core/tests/rules/queues`.

use mortise_harness::{Server, cmd, granted, holders_of, is_nil, queue_of, waiter};

#[test]
fn an_upgrader_whose_read_hold_ends_gets_null_and_the_next_is_granted() {
    for (lease, end) in [
        (300, "PING"),
        (60_000, "LOCK.RELEASE key a"),
        (60_000, "DEL key"),
    ] {
        let (server, mut conn) = Server::start_connected();
        cmd!(conn, "LOCK.RLOCK key a {lease}");
        cmd!(conn, "LOCK.RLOCK key b 60000");
        let mut upgrader = waiter!(server, "LOCK.WLOCK key a 60000 WAIT 0");
        let mut w = waiter!(server, "LOCK.WLOCK key w 60000 WAIT 0");
        cmd!(conn, "{end}");
        assert!(is_nil(&upgrader.recv()), "{end}");
        if end != "DEL key" {
            assert_eq!(holders_of(&mut conn, "key"), ["b"], "{end}");
            assert_eq!(queue_of(&mut conn, "key"), ["w"], "{end}");
            cmd!(conn, "LOCK.RELEASE key b");
        }
        granted(&mut w);
        assert_eq!(holders_of(&mut conn, "key"), ["w"], "{end}");
    }
}

#[test]
fn an_upgrader_that_times_out_keeps_its_read_hold_and_lets_readers_in() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.RLOCK key a 60000");
    cmd!(conn, "LOCK.RLOCK key b 60000");
    let mut upgrader = waiter!(server, "LOCK.WLOCK key a 60000 WAIT 1500");
    let mut reader = waiter!(server, "LOCK.RLOCK key c 60000 WAIT 0");
    assert!(is_nil(&upgrader.recv()));
    granted(&mut reader);
    assert_eq!(holders_of(&mut conn, "key"), ["a", "b", "c"]);
}
