//! LOCK.RENEW and LOCK.FENCE raise leases and tokens; they never shorten a lease, lower a token or revive a hold.

use mortise_harness::{
    Conn, Server, cmd, eventually, hold_of, int, is_nil, lock_info, try_cmd, wall_micros,
};

const HOUR_IN_MICROS: i64 = 3_600_000_000;

fn lease(conn: &mut Conn, owner: &str) -> i64 {
    hold_of(conn, "key", owner).expect("the owner holds").lease
}

#[test]
fn a_renewal_lengthens_the_lease_and_replies_the_token() {
    let server = Server::start();
    let mut conn = server.connect();
    for acquire in ["LOCK.ACQUIRE", "LOCK.RLOCK"] {
        let token = int(&cmd!(conn, acquire, "key", "a", 60_000, "HOLDS", 3));
        assert_eq!(int(&cmd!(conn, "LOCK.RENEW", "key", "a", 600_000)), token);
        let hold = hold_of(&mut conn, "key", "a").unwrap();
        assert_eq!((hold.write + hold.read, hold.token), (3, token));
        assert!((300_000..=600_000).contains(&hold.lease), "{hold:?}");
        cmd!(conn, "LOCK.RELEASE", "key", "a", "ALL");
    }
}

#[test]
fn a_renewal_never_shortens_the_lease() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 600_000));
    for shorter in [1, 1_000, 300_000] {
        assert_eq!(int(&cmd!(conn, "LOCK.RENEW", "key", "a", shorter)), token);
        let left = lease(&mut conn, "a");
        assert!((300_001..=600_000).contains(&left), "{left}");
    }
}

#[test]
fn a_renewed_hold_outlives_its_first_lease() {
    let server = Server::start();
    let mut conn = server.connect();
    // In one transaction, so that the lease cannot end before the renewal.
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 200);
    cmd!(conn, "LOCK.RENEW", "key", "a", 60_000);
    cmd!(conn, "EXEC");
    eventually("the first lease would be over", || {
        hold_of(&mut conn, "key", "a").expect("it is held").held > 400
    });
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE", "key", "b", 1_000)));
}

#[test]
fn a_renewal_with_a_token_renews_only_the_hold_of_that_token() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
    for wrong in [1, token - 1, token + 1, (1 << 53) - 1] {
        let reply = cmd!(conn, "LOCK.RENEW", "key", "a", 600_000, "TOKEN", wrong);
        assert!(is_nil(&reply));
        assert!(lease(&mut conn, "a") <= 60_000);
    }
    let reply = cmd!(conn, "LOCK.RENEW", "key", "a", 600_000, "token", token);
    assert_eq!(int(&reply), token);
    assert!(lease(&mut conn, "a") > 300_000);
}

#[test]
fn a_renewal_without_a_hold_is_null_and_creates_nothing() {
    let server = Server::start();
    let mut conn = server.connect();
    assert!(is_nil(&cmd!(conn, "LOCK.RENEW", "key", "a", 60_000)));
    assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 0);

    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
    assert!(is_nil(&cmd!(conn, "LOCK.RENEW", "key", "b", 60_000)));
    cmd!(conn, "LOCK.RELEASE", "key", "a");
    assert!(is_nil(&cmd!(conn, "LOCK.RENEW", "key", "a", 60_000)));
    assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 0);
}

#[test]
fn only_a_new_acquire_revives_an_ended_hold() {
    let server = Server::start();
    let mut conn = server.connect();
    let old = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 1));
    eventually("the lease is over", || {
        lock_info(&mut conn, "key").is_none()
    });
    assert!(is_nil(&cmd!(conn, "LOCK.RENEW", "key", "a", 60_000)));
    assert!(is_nil(&cmd!(conn, "LOCK.FENCE", "key", "a", old + 1)));
    let new = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
    assert!(new > old);
    // The user of the old hold learns that it no longer holds.
    let late = cmd!(conn, "LOCK.RENEW", "key", "a", 60_000, "TOKEN", old);
    assert!(is_nil(&late));
}

#[test]
fn invalid_options_of_a_renewal_are_errors() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000)).to_string();
    let cases: &[&[&str]] = &[
        &["TOKEN"],
        &["TOKEN", &token, "TOKEN", &token],
        &["TOKEN", &token, "more"],
        &["HOLDS", "1"],
        &["WAIT", "1"],
    ];
    for options in cases {
        let words = [&["LOCK.RENEW", "key", "a", "600000"], *options].concat();
        let error = conn.try_cmd(&words).unwrap_err();
        assert!(error.starts_with("ERR "), "{words:?}: {error}");
        assert!(lease(&mut conn, "a") <= 60_000, "{words:?}");
    }
}

#[test]
fn a_fence_raises_the_holds_token_and_every_later_grant_exceeds_it() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
    let ahead = token + HOUR_IN_MICROS / 2;
    assert_eq!(int(&cmd!(conn, "LOCK.FENCE", "key", "a", ahead)), ahead);
    let hold = hold_of(&mut conn, "key", "a").unwrap();
    assert_eq!((hold.counts(), hold.token), ((1, 0), ahead));

    // Only the new token is valid, and re-entry does not change it.
    let old = cmd!(conn, "LOCK.RELEASE", "key", "a", "TOKEN", token);
    assert!(is_nil(&old));
    assert_eq!(int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000)), ahead);
    assert_eq!(int(&cmd!(conn, "LOCK.RENEW", "key", "a", 60_000)), ahead);
    for other in ["other", "another"] {
        let later = int(&cmd!(conn, "LOCK.ACQUIRE", other, "b", 60_000));
        assert!(later > ahead, "{later} > {ahead}");
    }
}

#[test]
fn a_fence_below_the_token_of_the_hold_replies_that_token_and_lowers_nothing() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
    for lower in [1, token - 1, token] {
        assert_eq!(int(&cmd!(conn, "LOCK.FENCE", "key", "a", lower)), token);
        assert_eq!(hold_of(&mut conn, "key", "a").unwrap().token, token);
    }
    assert!(int(&cmd!(conn, "LOCK.ACQUIRE", "other", "a", 60_000)) > token);
}

#[test]
fn a_fence_more_than_an_hour_ahead_is_an_error_and_moves_nothing() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
    for too_high in [wall_micros() + 2 * HOUR_IN_MICROS, (1 << 53) - 1] {
        for (key, owner) in [("key", "a"), ("key", "b"), ("free", "a")] {
            let error = try_cmd!(conn, "LOCK.FENCE", key, owner, too_high).unwrap_err();
            assert!(error.starts_with("ERR "), "{error}");
            assert!(error.contains("token"), "{error}");
        }
    }
    assert_eq!(hold_of(&mut conn, "key", "a").unwrap().token, token);
    let next = int(&cmd!(conn, "LOCK.ACQUIRE", "other", "a", 60_000));
    assert!(next <= wall_micros(), "{next}");
}

#[test]
fn a_fence_without_a_hold_is_null_and_moves_nothing() {
    let server = Server::start();
    let mut conn = server.connect();
    let ahead = wall_micros() + HOUR_IN_MICROS / 2;
    assert!(is_nil(&cmd!(conn, "LOCK.FENCE", "key", "a", ahead)));
    assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 0);
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
    assert!(is_nil(&cmd!(conn, "LOCK.FENCE", "key", "b", ahead)));
    let next = int(&cmd!(conn, "LOCK.ACQUIRE", "other", "a", 60_000));
    assert!(next <= wall_micros(), "{next}");
}

#[test]
fn a_fence_takes_no_options() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
    let error = try_cmd!(conn, "LOCK.FENCE", "key", "a", token + 5, "TOKEN", token).unwrap_err();
    assert!(error.starts_with("ERR "), "{error}");
    assert_eq!(hold_of(&mut conn, "key", "a").unwrap().token, token);
}
