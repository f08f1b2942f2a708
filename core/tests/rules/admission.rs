//! What a lock says of a request before it is granted.

use mortise_core::{
    AcquireError, Busy, Count, Instant, Lock, Mode, Request, Sharing, Terms, Token, TokenClock,
    Turn,
};

use crate::requests::{self, NOW, WALL, owner};

fn request(name: &[u8], sharing: Sharing, holds: u32) -> Request<'_> {
    let request = requests::request(name, sharing, 100);
    Request {
        terms: Terms {
            holds: Count::new(holds),
            ..request.terms
        },
        ..request
    }
}

fn acquire(lock: &mut Lock, now: Instant, request: &Request<'_>) -> bool {
    let mut live = lock.at(now, |_, _| {});
    let granted = live.acquire(request, Turn::First, &mut TokenClock::new(), WALL);
    granted.is_ok()
}

#[test]
fn in_the_grace_an_upgrade_is_told_from_other_requests() {
    let (write, read) = (Sharing::from(Mode::Write), Sharing::from(Mode::Read));
    let mut lock = Lock::free();
    assert!(acquire(&mut lock, NOW, &request(b"a", read, 1)));
    let live = lock.at(NOW, |_, _| {});
    for (name, sharing, busy) in [
        (&b"a"[..], write, Busy::Upgrade),
        (b"a", read, Busy::Held),
        (b"b", write, Busy::Held),
    ] {
        let refused = live.refuse_in_grace(&request(name, sharing, 1));
        assert_eq!(refused, AcquireError::Busy(busy), "{name:?}");
    }
}

#[test]
fn in_the_grace_the_owner_of_a_revoked_hold_learns_that() {
    let write = Sharing::from(Mode::Write);
    let mut lock = Lock::free();
    assert!(acquire(&mut lock, NOW, &request(b"a", write, 1)));
    let mut live = lock.at(NOW, |_, _| {});
    assert!(live.revoke(owner(b"a"), None).is_some_and(|it| it.changed));
    for (name, refused) in [
        (b"a", AcquireError::Revoked),
        (b"b", AcquireError::Busy(Busy::Held)),
    ] {
        assert_eq!(live.refuse_in_grace(&request(name, write, 1)), refused);
    }
}

#[test]
fn in_the_grace_a_token_that_no_hold_has_is_told() {
    let write = Sharing::from(Mode::Write);
    let mut lock = Lock::free();
    assert!(acquire(&mut lock, NOW, &request(b"a", write, 1)));
    let token = lock.hold(owner(b"a")).expect("held").token;
    let live = lock.at(NOW, |_, _| {});
    let by = |token| {
        let mut again = request(b"a", write, 1);
        again.terms.token = Some(token);
        live.refuse_in_grace(&again)
    };
    assert_eq!(by(token), AcquireError::Busy(Busy::Held));
    assert_eq!(by(Token::MAX), AcquireError::NotHeldByToken);
}

#[test]
fn a_lock_is_held_until_its_lease_is_over_and_by_one_token() {
    let (read, name) = (Sharing::from(Mode::Read), owner(b"a"));
    let mut lock = Lock::free();
    assert!(acquire(&mut lock, NOW, &request(b"a", read, 1)));
    let token = lock.hold(name).expect("held").token;
    let mut live = lock.at(NOW.after(99), |_, _| {});
    assert_eq!((live.len(), live.is_empty()), (1, false));
    assert!(live.confirm(name, token));
    assert!(!live.confirm(name, Token::MAX) && !live.confirm(owner(b"b"), token));
    assert!(acquire(&mut lock, NOW, &request(b"b", read, 1)));
    let live = lock.at(NOW.after(100), |_, _| {});
    assert_eq!((live.len(), live.is_empty()), (0, true));
}
