//! `FENCE t` of the acquiring commands: the bounds of the granted token.

use mortise_harness::{Server, cmd, hold_of, int, lock_info, try_cmd, wall_micros};

/// How far ahead of the wall clock a requested token may be: one hour, in microseconds.
const HOUR: i64 = 3_600_000_000;

/// The largest number in an error's text before `, got`: the bound it names.
#[track_caller]
fn bound_named_in(error: &str) -> i64 {
    let (before, _) = error.split_once(", got").unwrap_or((error, ""));
    let numbers = before.split(|c: char| !c.is_ascii_digit());
    let bound = numbers.filter_map(|number| number.parse().ok()).max();
    bound.unwrap_or_else(|| panic!("{error:?} names no bound"))
}

#[test]
fn a_token_is_at_least_the_fence_and_equals_it_while_the_clock_is_behind() {
    let server = Server::start();
    let mut conn = server.connect();
    for (key, acquire) in [("one", "LOCK.ACQUIRE"), ("two", "LOCK.RLOCK")] {
        let fence = wall_micros() + HOUR / 2;
        let token = cmd!(conn, acquire, key, "a", 10_000, "FENCE", fence);
        assert_eq!(int(&token), fence);
        assert_eq!(hold_of(&mut conn, key, "a").unwrap().token, fence);
        let next = int(&cmd!(conn, "LOCK.ACQUIRE", "other", "a", 10_000));
        assert!(next > fence, "{next} > {fence}");
        cmd!(conn, "LOCK.RELEASE", "other", "a");
    }
}

#[test]
fn a_fence_up_to_an_hour_ahead_of_the_clock_is_granted_and_one_above_is_refused() {
    let server = Server::start();
    let mut conn = server.connect();
    for acquire in ["LOCK.ACQUIRE", "LOCK.WLOCK", "LOCK.RLOCK"] {
        let too_high = wall_micros() + 2 * HOUR;
        let before = wall_micros();
        let error = try_cmd!(conn, acquire, "key", "a", 10_000, "FENCE", too_high).unwrap_err();
        let after = wall_micros();
        assert!(error.starts_with("ERR "), "{error}");
        assert!(error.contains("FENCE"), "{error}");
        let bound = bound_named_in(&error);
        assert!((before + HOUR..=after + HOUR).contains(&bound), "{error}");
        assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 0);

        let token = cmd!(conn, acquire, "key", "a", 10_000, "FENCE", bound);
        assert_eq!(int(&token), bound);
        cmd!(conn, "LOCK.RELEASE", "key", "a");
        // Repeated requests cannot use up the numbers.
        let next = int(&cmd!(conn, acquire, "key", "a", 10_000));
        assert_eq!(next, bound + 1);
        cmd!(conn, "LOCK.RELEASE", "key", "a");
    }
}

#[test]
fn a_refused_fence_does_not_move_the_token_clock() {
    let server = Server::start();
    let mut conn = server.connect();
    let largest = (1_i64 << 53) - 1;
    try_cmd!(conn, "LOCK.ACQUIRE", "key", "a", 10_000, "FENCE", largest).unwrap_err();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 10_000));
    assert!(token <= wall_micros(), "{token}");
}

#[test]
fn re_entry_ignores_the_fence() {
    let server = Server::start();
    let mut conn = server.connect();
    for acquire in ["LOCK.ACQUIRE", "LOCK.RLOCK"] {
        let token = int(&cmd!(conn, acquire, "key", "a", 10_000));
        let ahead = wall_micros() + HOUR / 2;
        let again = cmd!(conn, acquire, "key", "a", 10_000, "FENCE", ahead);
        assert_eq!(int(&again), token);
        assert_eq!(lock_info(&mut conn, "key").unwrap().holds[0].token, token);
        let next = int(&cmd!(conn, "LOCK.ACQUIRE", "other", "a", 10_000));
        assert!(next < ahead, "the token clock stays where it was");
        cmd!(conn, "LOCK.RELEASE", "key", "a", "ALL");
        cmd!(conn, "LOCK.RELEASE", "other", "a");
    }
}
