//! Tests that call the queues directly: where requests stand that were moved, and which requests move.

use mortise_core::{
    Busy, Count, Instant, KeyId, Lock, Micros, Mode, PendingRequest, Queues, Request, Sharing,
    TokenClock, Turn,
};

use super::server::{NOW, key_id, terms};
use crate::requests::{for_one, for_several, named};

/// When the lease of a hold that was taken at `NOW` is over.
const LATER: Instant = Instant::from_millis(61_000);

fn one(key: &KeyId, owner: &str, mode: Mode) -> PendingRequest {
    for_one(key, named(owner), terms(mode.into()), Lock::free(), NOW)
}

fn push(queues: &mut Queues, key: &KeyId, owner: &str, mode: Mode) {
    queues.push(&one(key, owner, mode));
}

fn push_both(queues: &mut Queues, owner: &str) {
    push_several(queues, [key_id(0), key_id(1)], owner);
}

fn push_several(queues: &mut Queues, keys: [KeyId; 2], owner: &str) {
    let keys = keys.map(|key| (key, Lock::free()));
    let terms = terms(Sharing::several(2));
    queues.push(&for_several(keys, named(owner), terms, NOW));
}

/// Queues a request for the one permit of a lock.
fn push_limited(queues: &mut Queues, key: &KeyId, owner: &str) {
    let one_of_one = terms(Sharing::within(Count::new(1).expect("not 0")));
    let request = for_one(key, named(owner), one_of_one, Lock::free(), NOW);
    queues.push(&request);
}

/// A lock that `owner` has taken.
fn held(owner: &str, mode: Mode, now: Instant) -> Lock {
    let mut lock = Lock::free();
    acquire(&mut lock, owner, mode, now);
    lock
}

fn acquire(lock: &mut Lock, owner: &str, mode: Mode, now: Instant) {
    let owner = named(owner);
    let request = Request {
        owner: owner.as_ref(),
        terms: terms(mode.into()),
    };
    let mut live = lock.at(now, |_, _| {});
    let granted = live.acquire(&request, Turn::First, &mut TokenClock::new(), Micros(0));
    granted.expect("nobody excludes it");
}

/// The queues see that `owner` holds `key` since `NOW`.
fn observe(queues: &mut Queues, key: &KeyId, owner: &str, mode: Mode) {
    queues.observe(key.as_ref(), held(owner, mode, NOW).observe());
}

/// Whose request stands first.
fn first_at(queues: &Queues, key: &KeyId) -> Vec<u8> {
    let queue = queues.get(key.as_ref()).expect("some wait there");
    let first = queue.iter().next().expect("some wait there");
    first.owner.text().to_vec()
}

#[test]
fn a_queue_shows_its_first_request_for_several_keys_its_holders_and_its_oldest_request() {
    let (mut queues, [first, second]) = (Queues::new(), [key_id(0), key_id(1)]);
    assert!(!queues.any_several());
    push_both(&mut queues, "both");
    observe(&mut queues, &second, "task##1", Mode::Write);
    for (name, since) in [("young", 20), ("task##0", 10)] {
        let since = NOW.after(since);
        let request = PendingRequest {
            since,
            ..one(&first, name, Mode::Write)
        };
        let enqueued = queues.enqueue(&request).expect("no deadlock");
        // "both" waits for the task, so the task may not wait for it.
        assert_eq!(enqueued.is_first, name == "task##0");
    }
    assert!(queues.any_several());
    let queue = queues.get(first.as_ref()).expect("three wait there");
    assert_eq!((queue.len(), queue.is_empty()), (3, false));
    assert_eq!(queue.oldest(), Some(NOW), "the one for both keys");
    let several = queue.first_several().map(|it| it.owner.text().to_vec());
    assert_eq!(several.as_deref(), Some(&b"both"[..]));
    let both = queue.first_several().expect("it waits").id;
    assert!(queues.remove(both).is_some());
    assert!(!queues.any_several() && queues.get(second.as_ref()).is_none());

    observe(&mut queues, &first, "reader", Mode::Read);
    let queue = queues.get(first.as_ref()).expect("two wait there");
    assert!(queue.first_several().is_none());
    assert_eq!(queue.held().mode(NOW), Some(Mode::Read));
    assert_eq!(queue.oldest(), Some(NOW.after(10)), "though it was moved");
}

#[test]
fn when_a_request_moves_ahead_its_task_also_passes_the_overtaken_requests_elsewhere() {
    let (mut queues, [first, second]) = (Queues::new(), [key_id(0), key_id(1)]);
    push_both(&mut queues, "ahead");
    push(&mut queues, &first, "task##0", Mode::Write);
    push_both(&mut queues, "behind");
    // The task waits for "behind" at the second key, and "behind" for the task at the first one.
    let enqueued = queues.enqueue(&one(&second, "task##1", Mode::Write));
    let enqueued = enqueued.expect("no deadlock");
    // "ahead" waits for the task at the second key now, so the task may not wait for it at the first one.
    assert!(enqueued.is_first);
    assert_eq!(first_at(&queues, &first), b"task##0");
    assert_eq!(first_at(&queues, &second), b"task##1");
    assert!(enqueued.moved.contains(&first));
    queues.withdraw(enqueued);
    assert_eq!(first_at(&queues, &first), b"ahead");
    assert_eq!(first_at(&queues, &second), b"ahead");
}

#[test]
fn a_request_behind_a_write_that_moves_with_its_owner_waits_for_nobody_between() {
    let (mut queues, [first, second]) = (Queues::new(), [key_id(0), key_id(1)]);
    push(&mut queues, &first, "moved", Mode::Read);
    push(&mut queues, &first, "between##0", Mode::Read);
    push(&mut queues, &first, "last", Mode::Read);
    let lock = held("last", Mode::Write, NOW);
    let mut wait = one(&second, "between##1", Mode::Write);
    wait.keys[0].held = lock.observe();
    // "last" waits for nobody whom it excludes.
    let enqueued = queues.enqueue(&wait).expect("no deadlock");
    queues.withdraw(enqueued);
    // The write of "moved" is decided as soon as "moved" reads, ahead of "between".
    push(&mut queues, &first, "moved", Mode::Write);
    let enqueued = queues.enqueue(&wait).expect("no deadlock");
    queues.withdraw(enqueued);
    // "last" waits for this one, and it for "between".
    push(&mut queues, &first, "writer", Mode::Write);
    push(&mut queues, &first, "last", Mode::Read);
    let enqueued = queues.enqueue(&wait).expect("no deadlock");
    queues.withdraw(enqueued);
    let mut wait = wait;
    wait.keys[0].held = held("writer", Mode::Write, NOW).observe();
    let deadlock = queues.enqueue(&wait).expect_err("a cycle");
    assert_eq!(deadlock.keys, [second, first]);
}

#[test]
fn a_hold_that_is_over_moves_nobody_when_an_owner_comes_to_hold_another_lock() {
    for (now, first) in [(NOW, "task##0"), (LATER, "both")] {
        let mut queues = Queues::new();
        push_both(&mut queues, "both");
        push(&mut queues, &key_id(1), "task##0", Mode::Read);
        push(&mut queues, &key_id(2), "holder", Mode::Read);
        observe(&mut queues, &key_id(0), "holder", Mode::Write);
        // "task##0" waits for "both", that for "holder" while its lease lasts, and "holder" for the task.
        let (mut lock, mut tokens) = (held("task##1", Mode::Write, now), TokenClock::new());
        let key = key_id(2);
        queues.came_to_hold(key.as_ref(), named("task##1").as_ref());
        let mut live = lock.at(now, |_, _| {});
        let settled = queues.settle(key.as_ref(), &mut live, &mut tokens, Micros(0), 9);
        assert!(settled.decided.is_empty() && !settled.more);
        assert_eq!(first_at(&queues, &key_id(1)), first.as_bytes());
    }
}

#[test]
fn only_a_request_with_a_limit_waits_for_the_limit() {
    let mut queues = Queues::new();
    push_both(&mut queues, "both");
    push(&mut queues, &key_id(0), "behind##0", Mode::Read);
    observe(&mut queues, &key_id(0), "task##1", Mode::Read);
    // The task asks for a permit of a lock that "behind" holds. "behind" waits for the task only because it stands behind "both".
    let one_of_one = Sharing::within(Count::new(1).expect("not 0"));
    let held = held("behind##1", Mode::Write, NOW).observe();
    let wait = for_one(&key_id(2), named("task##0"), terms(one_of_one), held, NOW);
    let enqueued = queues.enqueue(&wait).expect("no deadlock");
    assert_eq!(enqueued.moved, [key_id(0)]);
}

#[test]
fn nobody_waits_for_the_limit_of_a_request_right_behind() {
    let mut queues = Queues::new();
    push_both(&mut queues, "both");
    push(&mut queues, &key_id(0), "ahead##0", Mode::Read);
    push_limited(&mut queues, &key_id(0), "last");
    observe(&mut queues, &key_id(0), "task##1", Mode::Read);
    // The task asks for a lock that "ahead" holds. "ahead" waits for the task only because it stands behind "both". "last" waits for the limit.
    let mut wait = one(&key_id(2), "task##0", Mode::Write);
    wait.keys[0].held = held("ahead##1", Mode::Write, NOW).observe();
    let enqueued = queues.enqueue(&wait).expect("no deadlock");
    assert_eq!(enqueued.moved, [key_id(0)]);
}

#[test]
fn a_request_that_waits_for_the_limit_of_the_only_reader_does_not_move() {
    let mut queues = Queues::new();
    push_several(&mut queues, [key_id(3), key_id(4)], "both");
    push(&mut queues, &key_id(3), "behind##0", Mode::Read);
    push_limited(&mut queues, &key_id(0), "limited##0");
    observe(&mut queues, &key_id(0), "behind##1", Mode::Read);
    observe(&mut queues, &key_id(4), "task##1", Mode::Write);
    // The task is about to wait for "limited", which waits for "behind". Only that one stands behind "both", which waits for the task.
    let mut wait = one(&key_id(2), "task##0", Mode::Write);
    wait.keys[0].held = held("limited##1", Mode::Write, NOW).observe();
    let enqueued = queues.enqueue(&wait).expect("no deadlock");
    assert_eq!(enqueued.moved, [key_id(3)]);
}

#[test]
fn once_the_searches_for_a_request_have_taken_too_long_nobody_is_moved_any_more() {
    const BEHIND: usize = 100;
    let (mut queues, mut asked_for) = (Queues::new(), Lock::free());
    for number in 1..=BEHIND {
        // "task" reads the key, "several" waits for it, and "behind" waits only because it stands behind that.
        let keys = [key_id(number), key_id(BEHIND + number)];
        push_several(&mut queues, keys.clone(), &format!("several-{number}"));
        let behind = format!("behind-{number}##0");
        push(&mut queues, &keys[0], &behind, Mode::Read);
        observe(&mut queues, &keys[0], "task##1", Mode::Read);
        acquire(
            &mut asked_for,
            &format!("behind-{number}##1"),
            Mode::Read,
            NOW,
        );
    }
    // "task" is about to wait for all of them.
    let mut wait = one(&key_id(0), "task##0", Mode::Write);
    wait.keys[0].held = asked_for.observe();
    let enqueued = queues.enqueue(&wait).expect("none that it finds");
    let moved = enqueued.moved;
    assert!((1..BEHIND).contains(&moved.len()), "{moved:?}");
}

#[test]
fn a_request_that_is_due_is_not_granted_a_key_that_is_held_by_then() {
    let (mut queues, keys) = (Queues::new(), [key_id(0), key_id(1)]);
    push_both(&mut queues, "both");
    let mut tokens = TokenClock::new();
    let mut free = Lock::free();
    let live = &mut free.at(NOW, |_, _| {});
    queues.settle(keys[0].as_ref(), live, &mut tokens, Micros(0), 9);
    let due = queues.next_due().expect("both keys are free");
    assert!(queues.is_grantable(keys[0].as_ref(), due, live));
    assert!(!queues.any_due());
    // The attempt settles its keys.
    queues.settle(keys[0].as_ref(), live, &mut tokens, Micros(0), 9);
    assert!(queues.any_due());
    queues.set_tried(due);
    assert!(!queues.any_due());
    let mut renamed = held("holder", Mode::Write, NOW);
    let live = renamed.at(NOW, |_, _| {});
    assert!(!queues.is_grantable(keys[1].as_ref(), due, &live));
    let elsewhere = key_id(2);
    assert!(!queues.is_grantable(elsewhere.as_ref(), due, &live));
}

#[test]
fn a_request_that_is_decided_at_one_key_names_the_others_that_it_has_left() {
    let (mut queues, [first, second]) = (Queues::new(), [key_id(0), key_id(1)]);
    push_both(&mut queues, "both");
    let (mut lock, mut tokens) = (held("both", Mode::Write, NOW), TokenClock::new());
    queues.came_to_hold(first.as_ref(), named("both").as_ref());
    let mut live = lock.at(NOW, |_, _| {});
    let settled = queues.settle(first.as_ref(), &mut live, &mut tokens, Micros(0), 9);
    assert_eq!((settled.decided.len(), settled.left), (1, vec![second]));
}

#[test]
fn every_upgrade_whose_hold_has_ended_is_denied_in_slices_of_one() {
    let (mut queues, key) = (Queues::new(), key_id(0));
    for owner in ["a", "b", "c"] {
        queues.push(&PendingRequest {
            busy: Busy::Upgrade,
            ..one(&key, owner, Mode::Write)
        });
    }
    let mut slice = || queues.settle_lost(key.as_ref(), &Lock::free(), NOW, 1);
    for _ in 0..2 {
        let settled = slice();
        assert_eq!((settled.decided.len(), settled.more), (1, true));
    }
    assert_eq!(slice().decided.len(), 1, "the last one");
}

#[test]
fn a_granted_request_leaves_its_keys_from_the_last_to_the_first() {
    let (mut queues, [first, second]) = (Queues::new(), [key_id(0), key_id(1)]);
    push_both(&mut queues, "both");
    push_both(&mut queues, "next");
    let len = |queues: &Queues, key: &KeyId| queues.get(key.as_ref()).map(|it| it.len());
    let mut tokens = TokenClock::new();
    let (mut one, mut other) = (Lock::free(), Lock::free());
    let live = &mut one.at(NOW, |_, _| {});
    queues.settle(first.as_ref(), live, &mut tokens, Micros(0), 9);
    let due = queues.next_due().expect("both keys are free");
    let token = tokens.next(Micros(1), None).expect("a token");
    let too_early = queues.grant_last_key(first.as_ref(), due, live, token);
    assert!(too_early.is_err(), "the second key comes first");
    let last = &mut other.at(NOW, |_, _| {});
    let granted = queues.grant_last_key(second.as_ref(), due, last, token);
    assert_eq!(granted.expect("it is free").token, token);
    assert_eq!(
        (len(&queues, &first), len(&queues, &second)),
        (Some(2), Some(1))
    );
    let granted = queues.grant_last_key(first.as_ref(), due, live, token);
    assert_eq!(granted.expect("it is free").token, token);
    assert_eq!(
        (len(&queues, &first), len(&queues, &second)),
        (Some(1), Some(1))
    );
}

#[test]
fn of_two_requests_that_move_the_first_stays_ahead() {
    let (mut queues, [first, second]) = (Queues::new(), [key_id(0), key_id(1)]);
    push_both(&mut queues, "both");
    let mut readers = held("one##1", Mode::Read, NOW);
    acquire(&mut readers, "two##1", Mode::Read, NOW);
    queues.observe(second.as_ref(), readers.observe());
    // "both" waits for the two tasks, each of which is about to wait behind it.
    for owner in ["one##0", "two##0"] {
        let mut wait = one(&first, owner, Mode::Read);
        wait.keys[0].held = held("holder", Mode::Write, NOW).observe();
        let enqueued = queues.enqueue(&wait).expect("no deadlock");
        assert!(enqueued.moved.contains(&first), "{owner}");
    }
    let queue = queues.get(first.as_ref()).expect("some wait there");
    let owners: Vec<_> = queue.iter().map(|it| it.owner.text().to_vec()).collect();
    assert_eq!(
        owners,
        ["one##0", "two##0", "both"].map(|it| it.as_bytes().to_vec())
    );
}
