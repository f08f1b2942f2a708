//! LOCK.REVOKE: a hold that ends with its current lease.

use mortise_harness::{
    Conn, Hold, Server, array, cmd, error_line, eventually, granted, hold_of, int, is_nil,
    lock_info, refused, waiter,
};

fn hold(conn: &mut Conn, owner: &str) -> Hold {
    hold_of(conn, "key", owner).expect("the owner holds")
}

#[test]
fn a_revocation_replies_the_rest_of_the_lease_and_changes_only_the_mark() {
    let (server, mut conn) = Server::start_connected();
    for acquire in ["LOCK.WLOCK", "LOCK.RLOCK"] {
        cmd!(conn, "{acquire} key a 60000 HOLDS 3");
        let before = hold(&mut conn, "a");
        assert!(!before.revoked);
        let left = int(&cmd!(conn, "LOCK.REVOKE key a"));
        let after = hold(&mut conn, "a");
        assert!(after.revoked);
        assert_eq!(after.facts(), before.facts());
        assert_eq!(after.client, before.client);
        assert!((after.lease..=before.lease).contains(&left), "{left}");
        assert_eq!(int(&cmd!(conn, "PTTL key")), -1);
        cmd!(conn, "LOCK.RELEASE key a ALL");
    }
    assert_eq!(server.gauge("total_revocations"), 2);
    // A hold is revoked once.
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    let first = int(&cmd!(conn, "LOCK.REVOKE key a"));
    assert!((1..=first).contains(&int(&cmd!(conn, "LOCK.REVOKE key a"))));
    assert_eq!(server.gauge("total_revocations"), 3);
}

#[test]
fn revoking_an_owner_without_a_hold_is_null() {
    let (server, mut conn) = Server::start_connected();
    assert!(is_nil(&cmd!(conn, "LOCK.REVOKE key a")));
    assert_eq!(int(&cmd!(conn, "EXISTS key")), 0);
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    assert!(is_nil(&cmd!(conn, "LOCK.REVOKE key b")));
    // Late requests of an owner that has left change nothing.
    cmd!(conn, "LOCK.RLOCK left c 60000");
    cmd!(conn, "COPY left copy");
    cmd!(conn, "LOCK.LEAVE left c FOR 60000");
    cmd!(conn, "RENAME copy left");
    assert!(is_nil(&cmd!(conn, "LOCK.REVOKE left c")));
    assert!(!hold_of(&mut conn, "left", "c").unwrap().revoked);
    assert!(!hold(&mut conn, "a").revoked);
    assert_eq!(server.gauge("total_revocations"), 0);
}

#[test]
fn a_revoked_hold_ends_with_its_lease_though_its_owner_goes_on_renewing() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE key a 500");
    cmd!(conn, "LOCK.REVOKE key a");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    eventually("the lock is b's", || {
        assert!(is_nil(&cmd!(conn, "LOCK.RENEW key a 60000")));
        hold_of(&mut conn, "key", "b").is_some()
    });
    granted(&mut b);
}

#[test]
fn every_acquire_of_the_owner_of_a_revoked_hold_is_refused_and_changes_nothing() {
    let (server, mut conn) = Server::start_connected();
    let token = int(&cmd!(conn, "LOCK.RLOCK key a 60000 HOLDS 3"));
    cmd!(conn, "LOCK.RLOCK key b 60000");
    cmd!(conn, "LOCK.REVOKE key a");
    let (older, newer) = (token - 1, token + 1);
    for acquire in ["LOCK.ACQUIRE", "LOCK.WLOCK", "LOCK.RLOCK"] {
        for options in [
            "1",
            "86400000",
            "1000 HOLDS 1",
            "1000 HOLDS 2147483647",
            &format!("1000 TOKEN {older}"),
            &format!("1000 TOKEN {newer}"),
            &format!("1000 FENCE {newer}"),
            "1000 WAIT 0",
            "1000 WAIT 0 MAIL box HOLDS 1",
        ] {
            refused!(conn, "REVOKED ", "{acquire} key a {options}");
        }
        let script = format!("return redis.pcall('{acquire}', KEYS[1], 'a', 1000)");
        refused!(conn, "REVOKED ", "EVAL", script, 1, "key");
        cmd!(conn, "MULTI");
        cmd!(conn, "{acquire} key a 1000");
        let error = error_line(&array(&cmd!(conn, "EXEC"))[0]).expect("an error");
        assert!(error.starts_with("REVOKED "), "{error}");
    }
    let info = lock_info(&mut conn, "key").unwrap();
    assert_eq!((info.waiters, info.holds[0].counts()), (0, (0, 3)));
    assert!(info.holds[0].lease <= 60_000);
    // The other holders of this key are not affected, nor is the owner at other keys.
    assert!(!info.holds[1].revoked);
    int(&cmd!(conn, "LOCK.RLOCK key b 600000"));
    int(&cmd!(conn, "LOCK.RENEW key b 600000"));
    int(&cmd!(conn, "LOCK.RLOCK other a 60000"));
    int(&cmd!(conn, "LOCK.RENEW other a 60000"));
    assert_eq!(server.gauge("boxes"), 0);
}

#[test]
fn the_owner_of_a_revoked_hold_may_still_fence_guard_and_release() {
    let (_server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.WLOCK key a 60000 HOLDS 2");
    let token = int(&cmd!(conn, "LOCK.RLOCK key a 60000 HOLDS 2"));
    cmd!(conn, "LOCK.REVOKE key a");
    let fenced = token + 5;
    assert_eq!(int(&cmd!(conn, "LOCK.FENCE key a {fenced}")), fenced);
    cmd!(conn, "LOCK.GUARD key a {fenced} SET data written");
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE key a WRITE")), 3);
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE key a WRITE")), 2);
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE key a")), 1);
    let rest = hold(&mut conn, "a");
    assert_eq!((rest.counts(), rest.revoked), ((0, 1), true));
    refused!(conn, "REVOKED ", "LOCK.RLOCK key a 1000");
    assert_eq!(int(&cmd!(conn, "LOCK.LEAVE key a")), 1);
    assert_eq!(int(&cmd!(conn, "EXISTS key")), 0);
}

#[test]
fn a_hold_can_be_revoked_when_memory_is_full() {
    let (_server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    cmd!(conn, "CONFIG SET maxmemory 1");
    refused!(conn, "OOM ", "LOCK.ACQUIRE key b 60000");
    assert!(int(&cmd!(conn, "LOCK.REVOKE key a")) > 0);
    assert!(is_nil(&cmd!(conn, "LOCK.RENEW key a 60000")));
}
