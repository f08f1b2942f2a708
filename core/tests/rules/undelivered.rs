//! Grants whose owners may not know of them yet.

use mortise_core::{
    Db, HomeKey, Homes, KeyId, KeyRef, Lock, Mode, PendingRequest, Queues, Stake, TokenClock,
    Touched, Turn, Undelivered, UndeliveredGrant, Undo, WaiterId,
};

use crate::requests::{self, NOW, named, owner, terms};

fn key(name: &[u8]) -> HomeKey {
    Homes::default().home_key(KeyRef { db: Db(0), name })
}

/// What undoes a grant that left a hold touched by `granted`, and found it as `before`.
fn undo(granted: u64, before: Option<u64>) -> Undo {
    let (mut lock, mut clock) = (Lock::free(), TokenClock::new());
    let read = requests::request(b"a", Mode::Read, 100);
    let mut live = lock.at(NOW, |_, _| {});
    let grant = live.acquire(&read, Turn::First, &mut clock, requests::WALL);
    let stake = grant.expect("free").stake();
    let touched = |client| Stake {
        touched: Touched::by(client),
        ..stake
    };
    Undo {
        owner: owner(b"a").to_owner(),
        granted: Touched::by(granted),
        token: stake.token,
        before: before.map(|client| Box::new(touched(client))),
    }
}

fn grant(keys: &[&[u8]], undo: Undo) -> UndeliveredGrant {
    let keys = keys.iter().map(|name| key(name)).collect();
    UndeliveredGrant { keys, undo }
}

#[test]
fn a_grant_is_taken_once_by_its_request_or_with_all_of_its_owner_at_a_key() {
    let mut undelivered = Undelivered::new();
    let several = grant(&[b"k", b"l"], undo(1, None));
    undelivered.insert(WaiterId(1), several.clone());
    undelivered.insert(WaiterId(2), grant(&[b"k"], undo(2, Some(1))));
    undelivered.insert(WaiterId(3), grant(&[b"m"], undo(3, None)));
    assert_eq!(undelivered.take(WaiterId(1)), Some(several));
    assert_eq!(undelivered.take(WaiterId(1)), None);
    assert!(undelivered.take_all_of(&key(b"k"), owner(b"b")).is_empty());
    let left = undelivered.take_all_of(&key(b"k"), owner(b"a"));
    assert_eq!(left, [grant(&[b"k"], undo(2, Some(1)))]);
    assert!(undelivered.take_all_of(&key(b"l"), owner(b"a")).is_empty());
    assert!(undelivered.take(WaiterId(3)).is_some());
}

#[test]
fn a_later_grant_undoes_an_earlier_one_that_it_has_changed_too() {
    let first = undo(1, Some(9));
    for (before, undoes) in [(1, Some(9)), (7, Some(7))] {
        let mut undelivered = Undelivered::new();
        undelivered.insert(WaiterId(2), grant(&[b"k"], undo(2, Some(before))));
        undelivered.merge(&key(b"k"), &first);
        let later = undelivered.take(WaiterId(2)).expect("not taken yet");
        let found = later.undo.before.map(|stake| stake.touched.client());
        assert_eq!(found, undoes, "it found a hold that {before} had touched");
    }
}

#[test]
fn only_a_request_that_was_granted_can_be_undone() {
    let key = KeyId {
        db: Db(0),
        name: b"k".as_slice().into(),
    };
    let (mut queues, mut lock, mut clock) = (Queues::new(), Lock::free(), TokenClock::new());
    for until in [NOW.after(5), NOW] {
        let wait = requests::for_one(&key, named("a"), terms(Mode::Read, 100), Lock::free(), NOW);
        queues.push(&PendingRequest { until, ..wait });
        let mut live = lock.at(NOW, |_, _| {});
        let settled = queues.settle(key.as_ref(), &mut live, &mut clock, requests::WALL, 9);
        let undo = Undo::of(&settled.decided[0]);
        assert_eq!(undo.is_some(), until > NOW);
        let held = lock.hold(owner(b"a")).expect("since the first");
        assert!(undo.is_none_or(|it| it.token == held.token && it.granted == held.touched));
    }
}
