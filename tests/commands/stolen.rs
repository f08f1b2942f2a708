//! What a client can and cannot do with a stolen owner name, as `docs/security.md` says.

use mortise_harness::{Conn, Server, cmd, granted, hold_of, int, is_nil, refused, waiter};

/// A server where `a` holds `key`, a connection, and the token.
fn held() -> (Server, Conn, i64) {
    let (server, mut conn) = Server::start_connected();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE key a 60000"));
    (server, conn, token)
}

#[test]
fn a_stolen_owner_name_can_end_the_hold_and_keep_that_name_away_but_not_the_next() {
    let (server, mut thief, token) = held();
    let mut next = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    assert_eq!(int(&cmd!(thief, "LOCK.LEAVE key a FOR 600000")), 1);
    granted(&mut next);
    // The owner's next command shows it the loss, and its writes are refused.
    assert!(is_nil(&cmd!(thief, "LOCK.RENEW key a 60000")));
    refused!(thief, "NOTHELD", "LOCK.GUARD key a {token} SET data x");
    refused!(thief, "LEFT", "LOCK.ACQUIRE key a 60000");
    cmd!(thief, "LOCK.RELEASE key b");
    assert!(!is_nil(&cmd!(thief, "LOCK.ACQUIRE key a2 60000")));
    refused!(thief, "ERR", "LOCK.LEAVE key a FOR 600001");
}

#[test]
fn a_stolen_owner_name_can_share_the_hold_by_the_same_token() {
    let (_server, mut thief, token) = held();
    assert_eq!(int(&cmd!(thief, "LOCK.ACQUIRE key a 60000")), token);
    assert_eq!(int(&cmd!(thief, "LOCK.RELEASE key a")), 1, "still held");
    // It can lengthen the lease, never shorten it.
    assert_eq!(int(&cmd!(thief, "LOCK.RENEW key a 1")), token);
    assert!(hold_of(&mut thief, "key", "a").unwrap().lease > 30_000);
}

#[test]
fn a_stolen_owner_name_can_pass_the_hold_on_and_the_owner_notices() {
    let (_server, mut thief, token) = held();
    let passed = int(&cmd!(thief, "LOCK.PASS key a thief 60000"));
    assert!(passed > token);
    assert!(is_nil(&cmd!(thief, "LOCK.RENEW key a 60000")));
    refused!(thief, "NOTHELD", "LOCK.GUARD key a {token} SET data x");
}
