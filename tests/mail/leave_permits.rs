//! LEAVE ends a hold and a request of its owner together: nobody else is decided while only one of them is gone.

use mortise_harness::{Server, cmd, command, granted, hold_of, is_nil, waiter};

#[test]
fn requests_behind_an_owner_that_leaves_are_decided_without_its_permits() {
    for end in ["LOCK.LEAVE key d", "LOCK.RELEASE key d ALL"] {
        let (server, mut a) = Server::start_connected();
        cmd!(a, "LOCK.RLOCK key d 60000 HOLDS 3");
        cmd!(a, "LOCK.RLOCK key t 60000");
        let mut upgrade = waiter!(server, "LOCK.WLOCK key d 60000 WAIT 0");
        // Behind the upgrade: one permit, and up to three of six. Once `d` is gone, both fit.
        let mut one = waiter!(server, "LOCK.RLOCK key e 60000 WAIT 0");
        let three = command!("LOCK.RLOCK key e 60000 WAIT 0 HOLDS 3 LIMIT 6");
        let mut three = server.waiter(&three);
        cmd!(a, "{end}");
        assert!(is_nil(&upgrade.recv()), "{end}");
        let token = granted(&mut one);
        assert_eq!(granted(&mut three), token, "{end}");
        assert_eq!(hold_of(&mut a, "key", "e").unwrap().counts(), (0, 3));
    }
}
