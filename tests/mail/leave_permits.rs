//! LEAVE ends a hold and a request of its owner together: nobody else is decided while only one of them is gone.

use mortise_harness::{
    Conn, Server, cmd, command, granted, hold_of, int, is_nil, lock_info, mail, queue, waiter,
};

/// `d` reads three times and waits for its upgrade, `t` reads. Behind the upgrade stand two requests of `e`: one permit, and up to three
/// of six. Once `d` is gone, both fit.
fn scene(server: &Server) -> (Conn, Conn) {
    let mut a = server.connect();
    cmd!(a, "LOCK.RLOCK", "key", "d", 60_000, "HOLDS", 3);
    cmd!(a, "LOCK.RLOCK", "key", "t", 60_000);
    let upgrade = waiter!(server, "LOCK.WLOCK", "key", "d", 60_000, "WAIT", 0);
    (a, upgrade)
}

#[test]
fn requests_behind_an_owner_that_leaves_are_decided_without_its_permits() {
    for end in [
        &["LOCK.LEAVE", "key", "d"][..],
        &["LOCK.RELEASE", "key", "d", "ALL"],
    ] {
        let server = Server::start();
        let (mut a, mut upgrade) = scene(&server);
        let mut one = waiter!(server, "LOCK.RLOCK", "key", "e", 60_000, "WAIT", 0);
        let three = command!("LOCK.RLOCK key e 60000 WAIT 0 HOLDS 3 LIMIT 6");
        let mut three = server.waiter(&three);
        a.cmd(end);
        assert!(is_nil(&upgrade.recv()), "{end:?}");
        let token = granted(&mut one);
        assert_eq!(granted(&mut three), token, "{end:?}");
        assert_eq!(hold_of(&mut a, "key", "e").unwrap().counts(), (0, 3));
    }
}

#[test]
fn the_same_holds_for_requests_by_mail() {
    let server = Server::start();
    let (mut a, mut upgrade) = scene(&server);
    queue!(a, "box", "LOCK.RLOCK", "key", "e", 60_000);
    let three = command!("LOCK.RLOCK key e 60000 WAIT 0 HOLDS 3 LIMIT 6");
    let mut three = server.waiter(&three);
    assert_eq!(int(&cmd!(a, "LOCK.LEAVE", "key", "d")), 1);
    assert!(is_nil(&upgrade.recv()));
    granted(&mut three);
    assert_eq!(mail!(a, "box").results(), [("e", "granted")]);
}

#[test]
fn an_owner_with_a_hold_and_a_request_leaves_with_both_where_nobody_else_fits() {
    let server = Server::start();
    let (mut a, mut upgrade) = scene(&server);
    let seven = command!("LOCK.RLOCK key f 60000 WAIT 0 HOLDS 6 LIMIT 6");
    let _waits = server.waiter(&seven);
    assert_eq!(int(&cmd!(a, "LOCK.LEAVE", "key", "d")), 1);
    assert!(is_nil(&upgrade.recv()));
    let info = lock_info(&mut a, "key").unwrap();
    assert_eq!((info.holders, info.waiters), (1, 1));
}
