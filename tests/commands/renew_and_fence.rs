//! LOCK.RENEW and LOCK.FENCE raise leases and tokens; they never shorten a lease, lower a token or revive a hold.

use mortise_harness::{Server, cmd, eventually, hold_of, int, is_nil, refused, wall_micros};

const HOUR_IN_MICROS: i64 = 3_600_000_000;

#[test]
fn a_renewed_hold_outlives_its_first_lease() {
    let (_server, mut conn) = Server::start_connected();
    // In one transaction, so that the lease cannot end before the renewal.
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.ACQUIRE key a 200");
    cmd!(conn, "LOCK.RENEW key a 60000");
    cmd!(conn, "EXEC");
    eventually("the first lease would be over", || {
        hold_of(&mut conn, "key", "a").expect("it is held").held > 400
    });
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE key b 1000")));
}

#[test]
fn a_fence_raises_the_holds_token_and_every_later_grant_exceeds_it() {
    let (_server, mut conn) = Server::start_connected();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE key a 60000"));
    let ahead = token + HOUR_IN_MICROS / 2;
    assert_eq!(int(&cmd!(conn, "LOCK.FENCE key a {ahead}")), ahead);
    let hold = hold_of(&mut conn, "key", "a").unwrap();
    assert_eq!((hold.counts(), hold.token), ((1, 0), ahead));

    // Only the new token is valid, and re-entry does not change it.
    let old = cmd!(conn, "LOCK.RELEASE key a TOKEN {token}");
    assert!(is_nil(&old));
    assert_eq!(int(&cmd!(conn, "LOCK.ACQUIRE key a 60000")), ahead);
    assert_eq!(int(&cmd!(conn, "LOCK.RENEW key a 60000")), ahead);
    for other in ["other", "another"] {
        let later = int(&cmd!(conn, "LOCK.ACQUIRE {other} b 60000"));
        assert!(later > ahead, "{later} > {ahead}");
    }
}

#[test]
fn a_fence_more_than_an_hour_ahead_is_an_error_and_moves_nothing() {
    let (_server, mut conn) = Server::start_connected();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE key a 60000"));
    for too_high in [wall_micros() + 2 * HOUR_IN_MICROS, (1 << 53) - 1] {
        for (key, owner) in [("key", "a"), ("key", "b"), ("free", "a")] {
            let error = refused!(conn, "ERR ", "LOCK.FENCE {key} {owner} {too_high}");
            assert!(error.contains("token"), "{error}");
        }
    }
    assert_eq!(hold_of(&mut conn, "key", "a").unwrap().token, token);
    let next = int(&cmd!(conn, "LOCK.ACQUIRE other a 60000"));
    assert!(next <= wall_micros(), "{next}");
}
