//! Locks without a known key: they count until their leases are over, however they end.

use mortise_core::{
    Instant, Lease, Lock, Micros, Mode, OwnerRef, Request, StrayId, Strays, Terms, TokenClock, Turn,
};

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// A lock held from the first millisecond by one reader for each of these leases.
fn held(leases: &[u64]) -> Lock {
    let (mut lock, mut tokens) = (Lock::free(), TokenClock::new());
    for (number, lease) in leases.iter().enumerate() {
        let owner = number.to_string();
        let request = Request {
            owner: OwnerRef::new(owner.as_bytes()).expect("1 to 255 bytes"),
            terms: Terms {
                sharing: Mode::Read.into(),
                lease: Lease::from_millis(*lease).expect("at least 1"),
                holds: None,
                fence: None,
                token: None,
                client: 0,
            },
        };
        let granted =
            lock.at(at(0), |_, _| {})
                .acquire(&request, Turn::First, &mut tokens, Micros(0));
        granted.expect("compatible");
    }
    lock
}

fn counts(strays: &Strays) -> [u64; 2] {
    [strays.locks(), strays.holders()]
}

fn sweep(strays: &mut Strays, now: u64) {
    while strays.end_next(at(now)) {}
}

#[test]
fn strays_count_until_their_leases_are_over() {
    let mut strays = Strays::new();
    let (one, crowd) = (held(&[1_000]), held(&[500, 2_000, 2_000, 9_000]));
    let one = strays.insert(&one, at(0)).expect("it is held");
    let crowd_id = strays.insert(&crowd, at(0)).expect("it is held");
    for (now, left) in [
        (400, [2, 5]),
        (600, [2, 4]),
        (1_100, [1, 3]),
        (2_100, [1, 1]),
        (9_100, [0, 0]),
        (1 << 50, [0, 0]),
    ] {
        sweep(&mut strays, now);
        assert_eq!(counts(&strays), left, "at {now}");
    }
    for id in [one, crowd_id] {
        strays.remove(id);
        assert_eq!(counts(&strays), [0, 0]);
    }
}

#[test]
fn a_lock_that_nobody_holds_does_not_count_as_a_stray() {
    let mut strays = Strays::new();
    assert_eq!(strays.insert(&held(&[]), at(0)), None);
    assert_eq!(strays.insert(&held(&[100, 200]), at(200)), None);
    assert!(strays.insert(&held(&[100, 200]), at(150)).is_some());
    assert_eq!(counts(&strays), [1, 1]);
}

#[test]
fn readers_dropped_elsewhere_count_no_longer_than_their_leases() {
    let mut strays = Strays::new();
    let crowd = held(&[500, 1_000]);
    let id = strays.insert(&crowd, at(0)).expect("it is held");
    drop(crowd);
    sweep(&mut strays, 600);
    assert_eq!(counts(&strays), [0, 0]);
    strays.remove(id);
    assert_eq!(counts(&strays), [0, 0]);
}

#[test]
fn strays_that_were_forgotten_do_not_count_and_can_be_removed_later() {
    let mut strays = Strays::new();
    let before: Vec<StrayId> = (0..100)
        .filter_map(|n| strays.insert(&held(&[1_000 + n, 5_000]), at(0)))
        .collect();
    strays.forget_all();
    assert_eq!(counts(&strays), [0, 0]);
    let after = strays.insert(&held(&[5_000]), at(10)).expect("it is held");
    sweep(&mut strays, 1_070);
    for id in before {
        strays.remove(id);
        assert_eq!(counts(&strays), [1, 1]);
    }
    strays.remove(after);
    assert_eq!(counts(&strays), [0, 0]);
}
