//! Tests that call the queues directly: where a request of each rank stands, and which requests it waits for.

use mortise_core::{
    Count, Instant, KeyId, Lock, Member, Micros, Mode, Observed, Owner, OwnerRef, Queues, Rank,
    Request, Sharing, TokenClock, Turn, Wait, Waiter,
};

use super::server::{NOW, key_id, terms};

/// When the lease of a hold that was taken at `NOW` is over.
const LATER: Instant = Instant::from_millis(61_000);

fn named(owner: &str) -> Owner {
    OwnerRef::new(owner.as_bytes()).expect("short").to_owner()
}

fn waiter(queues: &mut Queues, owner: &str, sharing: Sharing) -> Waiter {
    Waiter {
        id: queues.next_id(),
        owner: named(owner),
        terms: terms(sharing),
        since: NOW,
        until: Instant::NEVER,
    }
}

fn push(queues: &mut Queues, key: &KeyId, owner: &str, mode: Mode, rank: Rank) {
    let waiter = waiter(queues, owner, mode.into());
    queues.push(key.as_ref(), waiter, rank);
}

fn push_both(queues: &mut Queues, owner: &str) {
    push_several(queues, &[key_id(0), key_id(1)], owner);
}

fn push_several(queues: &mut Queues, keys: &[KeyId; 2], owner: &str) {
    let waiter = waiter(queues, owner, Sharing::several(2));
    let members = keys.each_ref().map(|key| Member {
        key: key.as_ref(),
        ready: false,
    });
    queues.push_several(&members, &waiter);
}

fn write(key: &KeyId, owner: &str, rank: Rank) -> Wait {
    Wait {
        key: key.clone(),
        owner: named(owner),
        terms: terms(Mode::Write.into()),
        rank,
    }
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
    for (name, since) in [("young", 20), ("moved", 15), ("old", 10)] {
        let mut single = waiter(&mut queues, name, Mode::Write.into());
        single.since = NOW.after(since);
        let rank = if name == "young" {
            Rank::Last
        } else {
            Rank::Head
        };
        queues.push(first.as_ref(), single, rank);
    }
    assert!(queues.any_several());
    let queue = queues.get(first.as_ref()).expect("four wait there");
    assert_eq!((queue.len(), queue.is_empty()), (4, false));
    assert_eq!(queue.oldest(), Some(NOW), "the one for both keys");
    let several = queue.first_several().map(|it| it.owner.text().to_vec());
    assert_eq!(several.as_deref(), Some(&b"both"[..]));
    let both = queue.first_several().expect("it waits").id;
    assert!(queues.remove(both).is_some());
    assert!(!queues.any_several() && queues.get(second.as_ref()).is_none());

    observe(&mut queues, &first, "reader", Mode::Read);
    let queue = queues.get(first.as_ref()).expect("three wait there");
    assert!(queue.first_several().is_none());
    assert_eq!(queue.held().mode(NOW), Some(Mode::Read));
    assert_eq!(
        queue.oldest(),
        Some(NOW.after(10)),
        "though it stands between"
    );
}

#[test]
fn when_a_request_moves_ahead_its_task_also_passes_the_overtaken_requests_elsewhere() {
    let (mut queues, [first, second]) = (Queues::new(), [key_id(0), key_id(1)]);
    push_both(&mut queues, "ahead");
    push(&mut queues, &first, "task##0", Mode::Write, Rank::Last);
    push_both(&mut queues, "behind");
    // The task waits for "behind" at the second key, and "behind" for the task at the first one.
    let wait = write(&second, "task##1", Rank::Last);
    let plan = queues.plan_wait(wait, &Observed::default(), NOW);
    let moved = queues.make_moves(&plan);
    assert!(plan.deadlock.is_none() && matches!(plan.rank, Rank::Reserved(_)));
    // "ahead" waits for the task at the second key now, so the task may not wait for it at the first one.
    assert_eq!(first_at(&queues, &first), b"task##0");
    assert_eq!(moved, [first]);
}

/// Two requests were moved to the head of key 0: "fore##0" ahead of all, and then "head##0".
fn two_moved() -> Queues {
    let mut queues = Queues::new();
    push(&mut queues, &key_id(0), "fore##0", Mode::Write, Rank::Front);
    push(&mut queues, &key_id(0), "head##0", Mode::Write, Rank::Head);
    queues
}

/// A write of "task##0" at key 0 closes a cycle if it gets that rank.
fn closes(queues: &Queues, rank: Rank) -> bool {
    let wait = write(&key_id(0), "task##0", rank);
    let (cycle, _) = queues.find_cycle(&wait, &Observed::default(), NOW);
    cycle.is_some()
}

#[test]
fn a_request_that_moves_to_the_head_waits_for_those_that_were_moved_there_before() {
    let mut queues = two_moved();
    push(&mut queues, &key_id(1), "head##1", Mode::Write, Rank::Last);
    observe(&mut queues, &key_id(1), "task##1", Mode::Write);
    assert!(closes(&queues, Rank::Head) && !closes(&queues, Rank::Front));
}

#[test]
fn those_that_were_moved_to_the_head_wait_for_one_that_moves_ahead_of_all() {
    let mut queues = two_moved();
    push(&mut queues, &key_id(1), "task##1", Mode::Write, Rank::Last);
    observe(&mut queues, &key_id(1), "fore##1", Mode::Write);
    assert!(closes(&queues, Rank::Front) && !closes(&queues, Rank::Head));
}

#[test]
fn a_request_behind_a_write_that_moves_with_its_owner_waits_for_nobody_between() {
    let (mut queues, [first, second]) = (Queues::new(), [key_id(0), key_id(1)]);
    push(&mut queues, &first, "between##0", Mode::Read, Rank::Last);
    push(&mut queues, &first, "moved", Mode::Write, Rank::Last);
    push(&mut queues, &first, "last", Mode::Read, Rank::Last);
    let lock = held("last", Mode::Write, NOW);
    let wait = write(&second, "between##1", Rank::Last);
    // "last" waits for "moved", whose write stands ahead of it, and "moved" for "between".
    let (cycle, _) = queues.find_cycle(&wait, &lock.observe(), NOW);
    assert_eq!(cycle, Some(vec![second, first.clone()]));
    // Now "moved" comes to hold first, and then its write is decided before anybody else's request.
    push(&mut queues, &first, "moved", Mode::Read, Rank::Head);
    assert_eq!(queues.find_cycle(&wait, &lock.observe(), NOW).0, None);
}

#[test]
fn a_hold_that_is_over_moves_nobody_when_an_owner_comes_to_hold_another_lock() {
    for (now, first) in [(NOW, "task##0"), (LATER, "both")] {
        let mut queues = Queues::new();
        push_both(&mut queues, "both");
        push(&mut queues, &key_id(1), "task##0", Mode::Read, Rank::Last);
        push(&mut queues, &key_id(2), "holder", Mode::Read, Rank::Last);
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
fn a_request_behind_one_that_moves_to_the_head_waits_for_it() {
    let mut queues = Queues::new();
    push_both(&mut queues, "both");
    push(&mut queues, &key_id(0), "behind##0", Mode::Read, Rank::Last);
    push(&mut queues, &key_id(2), "task##1", Mode::Write, Rank::Last);
    observe(&mut queues, &key_id(2), "behind##1", Mode::Write);
    let wait = write(&key_id(0), "task##0", Rank::Head);
    let plan = queues.plan_wait(wait, &Observed::default(), NOW);
    // Not only because it stands behind "both", so nobody moves.
    assert_eq!(queues.make_moves(&plan), []);
    assert_eq!(plan.deadlock, Some(vec![key_id(0), key_id(2)]));
}

#[test]
fn a_request_that_moves_to_the_head_of_one_queue_is_ahead_of_nobody_in_another() {
    let mut queues = Queues::new();
    push_several(&mut queues, &[key_id(1), key_id(2)], "several");
    push(&mut queues, &key_id(1), "behind##0", Mode::Read, Rank::Last);
    observe(&mut queues, &key_id(1), "task##1", Mode::Read);
    let lock = held("behind##1", Mode::Write, NOW);
    let wait = write(&key_id(0), "task##0", Rank::Head);
    let plan = queues.plan_wait(wait, &lock.observe(), NOW);
    assert_eq!(queues.make_moves(&plan), [key_id(1)]);
    assert_eq!(plan.deadlock, None);
}

#[test]
fn only_a_request_with_a_limit_waits_for_the_limit() {
    let mut queues = Queues::new();
    push_both(&mut queues, "both");
    push(&mut queues, &key_id(0), "behind##0", Mode::Read, Rank::Last);
    observe(&mut queues, &key_id(0), "task##1", Mode::Read);
    // The task asks for a permit of a lock that "behind" holds. "behind" waits for the task only because it stands behind "both".
    let one = Count::new(1).expect("not 0");
    let wait = Wait {
        terms: terms(Sharing::within(one)),
        ..write(&key_id(2), "task##0", Rank::Last)
    };
    let lock = held("behind##1", Mode::Write, NOW);
    let plan = queues.plan_wait(wait, &lock.observe(), NOW);
    assert_eq!(queues.make_moves(&plan), [key_id(0)]);
    assert_eq!(plan.deadlock, None);
}

#[test]
fn once_the_searches_for_a_request_have_taken_too_long_nobody_is_moved_any_more() {
    const BEHIND: usize = 100;
    let (mut queues, mut asked_for) = (Queues::new(), Lock::free());
    for number in 1..=BEHIND {
        // "task" reads the key, "several" waits for it, and "behind" waits only because it stands behind that.
        let keys = [key_id(number), key_id(BEHIND + number)];
        push_several(&mut queues, &keys, &format!("several-{number}"));
        observe(&mut queues, &keys[0], "task##1", Mode::Read);
        let behind = format!("behind-{number}##0");
        push(&mut queues, &keys[0], &behind, Mode::Read, Rank::Last);
        acquire(
            &mut asked_for,
            &format!("behind-{number}##1"),
            Mode::Read,
            NOW,
        );
    }
    // "task" is about to wait for all of them.
    let wait = write(&key_id(0), "task##0", Rank::Last);
    let plan = queues.plan_wait(wait, &asked_for.observe(), NOW);
    let moved = queues.make_moves(&plan);
    assert_eq!(plan.deadlock, None);
    assert!((1..20).contains(&moved.len()), "{moved:?}");
}
