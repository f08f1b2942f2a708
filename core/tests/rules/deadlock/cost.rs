//! What the search costs before a wait begins, in the crowds that matter: how many owners it
//! checks, asserted, and how much processor time it takes, printed (`cargo test --release -- --nocapture cost`).

use allocation_counter::measure;
use mortise_core::{KeyId, Mode, Owner};

use super::crowd::{Crowd, key, owner, wait};
use crate::requests::named;

/// How many wait. Unoptimised, a tenth is enough.
const CROWD: usize = if cfg!(debug_assertions) {
    1_000
} else {
    10_000
};
/// Every third is a writer.
fn mixed(number: usize) -> Mode {
    if number.is_multiple_of(3) {
        Mode::Write
    } else {
        Mode::Read
    }
}

#[test]
fn a_crowd_on_one_lock_costs_a_few_steps_each() {
    let mut crowd = Crowd::default();
    crowd.hold(key(0), &owner("holder", 0), Mode::Write);
    for number in 0..CROWD {
        crowd.wait(key(0), owner("waiter", number), mixed(number));
    }
    crowd.print("one lock");
    assert!(crowd.most_steps <= 4, "{}", crowd.most_steps);
}

#[test]
fn an_owner_with_waiters_checks_nobody_of_a_crowd_on_one_lock() {
    let mut crowd = Crowd::default();
    let count = if cfg!(debug_assertions) {
        CROWD
    } else {
        1_000_000
    };
    crowd.hold(key(0), &owner("holder", 0), Mode::Write);
    crowd.push_all(&key(0), "waiter", count);
    crowd.hold(key(1), &owner("other", 0), Mode::Write);
    crowd.push_all(&key(1), "one", 1);
    crowd.wait(key(0), owner("other", 0), Mode::Write);
    crowd.print("behind a million waiters of one lock");
    assert!(crowd.most_steps <= 4, "{}", crowd.most_steps);
}

#[test]
fn a_crowd_with_a_lock_each_costs_a_few_steps_each() {
    let mut crowd = Crowd::default();
    for number in 0..CROWD {
        crowd.hold(key(number), &owner("holder", number), Mode::Write);
        crowd.wait(key(number), owner("waiter", number), Mode::Write);
    }
    crowd.print("a lock each");
    assert!(crowd.most_steps <= 4, "{}", crowd.most_steps);
}

#[test]
fn a_crowd_behind_a_crowd_of_readers_costs_a_step_for_each_reader() {
    let mut crowd = Crowd::default();
    crowd.hold(key(1), &owner("holder", 1), Mode::Write);
    for number in 0..CROWD {
        crowd.hold(key(0), &owner("reader", number), Mode::Read);
    }
    for number in 0..CROWD / 2 {
        crowd.wait(key(1), owner("other", number), Mode::Write);
        crowd.wait(key(0), owner("waiter", number), mixed(number));
    }
    crowd.print("behind readers, and half as many elsewhere");
    assert!(crowd.most_steps <= CROWD + 8, "{}", crowd.most_steps);
}

#[test]
fn a_cycle_of_two_is_found_while_crowds_read_and_wait_elsewhere() {
    let mut crowd = Crowd::default();
    for number in 0..2_000 {
        crowd.hold(key(0), &owner("reader", number), Mode::Read);
    }
    crowd.hold(key(1), &owner("holder", 1), Mode::Write);
    crowd.push_all(&key(1), "waiter", 6_000);
    crowd.hold(key(2), &owner("holder", 2), Mode::Write);
    crowd.push_all(&key(2), "other", 1);
    let closing = wait(key(0), owner("holder", 2), Mode::Write);
    assert!(!crowd.closes(&closing));
    // One of the readers, neither the first nor the last, waits for the holder.
    crowd.push(wait(key(2), owner("reader", 1_777), Mode::Write));
    assert!(crowd.closes(&closing), "a cycle of two");
    crowd.print("2,000 readers, 6,000 waiters elsewhere");
}

#[test]
fn ten_thousand_readers_beside_a_cycle_do_not_hide_it() {
    let mut crowd = Crowd::default();
    let fork = owner("fork", 0);
    crowd.hold(key(0), &fork, Mode::Write);
    crowd.hold(key(2), &owner("last", 0), Mode::Write);
    crowd.hold(key(3), &owner("asking", 0), Mode::Write);
    read(&mut crowd, &key(1), 0, 10_000);
    crowd.push(wait(key(1), fork.clone(), Mode::Write));
    crowd.push(wait(key(2), fork, Mode::Write));
    crowd.push(wait(key(3), owner("last", 0), Mode::Write));
    assert!(crowd.closes(&wait(key(0), owner("asking", 0), Mode::Write)));
    crowd.print("10,000 readers beside a cycle");
}

/// Owners that read `key`, of which nobody waits, from `first` on.
fn read(crowd: &mut Crowd, key: &KeyId, first: usize, count: usize) {
    for number in first..first + count {
        crowd.hold(key.clone(), &owner("reader", number), Mode::Read);
    }
}

#[test]
fn a_cycle_through_one_of_a_crowd_of_readers_is_found() {
    for (readers, others) in [(499, 500), (3_000, 10 * CROWD)] {
        let mut crowd = Crowd::default();
        read(&mut crowd, &key(0), 0, readers);
        crowd.hold(key(1), &owner("holder", 1), Mode::Write);
        crowd.push_all(&key(1), "other", others);
        crowd.hold(key(2), &owner("holder", 2), Mode::Write);
        let closing = wait(key(0), owner("holder", 2), Mode::Write);
        assert!(!crowd.closes(&closing), "nobody waits for it");
        crowd.hold(key(3), &owner("holder", 3), Mode::Write);
        crowd.push(wait(key(2), owner("holder", 3), Mode::Write));
        assert!(!crowd.closes(&closing), "of the readers none does");
        // The last one in the order of their names waits for one that waits for the asking owner.
        let last = (0..readers).map(|number| owner("reader", number)).max();
        crowd.push(wait(key(3), last.expect("there are some"), Mode::Write));
        assert!(crowd.closes(&closing), "{readers} readers, {others} others");
        crowd.print("readers, and as many that wait elsewhere");
    }
}

#[test]
fn a_ring_of_locks_each_read_by_a_crowd_is_found() {
    const LENGTH: usize = 15;
    // The same crowd reads all of them, or each is read by another one.
    for (readers, others) in [(200, 0), (50, 50)] {
        let mut crowd = Crowd::default();
        for number in 0..LENGTH {
            read(&mut crowd, &key(number), others * number, readers);
            crowd.hold(key(number), &owner("link", number), Mode::Read);
        }
        crowd.hold(key(LENGTH), &owner("asking", 0), Mode::Write);
        crowd.push_all(&key(LENGTH), "waiter", CROWD);
        for number in 0..LENGTH {
            crowd.push(wait(key(number + 1), owner("link", number), Mode::Write));
        }
        assert!(crowd.closes(&wait(key(0), owner("asking", 0), Mode::Write)));
        crowd.print("fifteen locks with many readers each");
    }
}

#[test]
fn a_crowd_that_waits_for_the_requester_hides_no_cycle() {
    // The whole crowd waits at the requester's lock and at one more: the cycle leads through it.
    let mut crowd = Crowd::default();
    crowd.hold(key(0), &owner("asking", 0), Mode::Write);
    crowd.hold(key(1), &owner("holder", 1), Mode::Write);
    const BLOCKED: usize = 150;
    crowd.push_all(&key(0), "waiter", BLOCKED);
    crowd.push_all(&key(1), "waiter", BLOCKED);
    read(&mut crowd, &key(2), 0, 1_000);
    crowd.hold(key(2), &owner("waiter", BLOCKED - 1), Mode::Read);
    crowd.hold(key(3), &owner("holder", 3), Mode::Write);
    crowd.push_all(&key(3), "other", CROWD);
    assert!(crowd.closes(&wait(key(2), owner("asking", 0), Mode::Write)));
    crowd.print("behind the requester");
}

#[test]
fn a_crowd_that_waits_for_the_same_two_locks_hides_no_cycle() {
    let count = if cfg!(debug_assertions) { 1_000 } else { 3_000 };
    let mut crowd = Crowd::default();
    crowd.hold(key(0), &owner("holder", 0), Mode::Write);
    crowd.hold(key(1), &owner("holder", 1), Mode::Write);
    for number in 0..count {
        crowd.wait(key(0), owner("waiter", number), Mode::Write);
        crowd.wait(key(1), owner("waiter", number), Mode::Write);
    }
    crowd.wait(key(0), owner("late", 0), Mode::Write);
    crowd.print("all for the same two locks, one after the other");

    let mut crowd = Crowd::default();
    crowd.hold(key(0), &owner("holder", 0), Mode::Write);
    crowd.hold(key(1), &owner("holder", 1), Mode::Write);
    crowd.push(wait(key(0), owner("ahead", 0), Mode::Write));
    crowd.push_all(&key(0), "waiter", count);
    // Others stand behind each of them in the other queue.
    for number in 0..count - 1 {
        crowd.wait(key(1), owner("waiter", number), Mode::Write);
    }
    crowd.print("all for the same two locks, one lock after the other");
    let closing = wait(key(1), owner("holder", 0), Mode::Write);
    assert!(
        crowd.closes(&closing),
        "the first one that is checked waits for it"
    );
    let closing = wait(key(1), owner("ahead", 0), Mode::Write);
    assert!(crowd.closes(&closing), "all of them wait for it");
}

#[test]
fn a_crowd_that_waits_for_two_of_many_locks_each_hides_no_cycle() {
    let count = 900;
    let mut crowd = Crowd::default();
    for number in 0..=count {
        crowd.hold(key(number), &owner("holder", number), Mode::Write);
    }
    for number in 0..count {
        // Each waits for its own lock, and for the one that all wait for.
        crowd.push(wait(key(number + 1), owner("waiter", number), Mode::Write));
        crowd.push(wait(key(0), owner("waiter", number), Mode::Write));
    }
    for number in 1..count {
        let closing = wait(key(0), owner("holder", number), Mode::Write);
        assert!(crowd.closes(&closing), "{number}");
    }
    crowd.print("900 that wait at two of as many locks");
}

#[test]
fn repeated_requests_of_one_owner_cost_a_check_or_two_each() {
    let mut crowd = Crowd::default();
    crowd.hold(key(0), &owner("holder", 0), Mode::Write);
    crowd.hold(key(1), &owner("holder", 1), Mode::Write);
    for number in 0..CROWD / 2 {
        crowd.wait(key(0), owner("waiter", 0), mixed(number));
        crowd.wait(key(1), owner("waiter", 0), Mode::Read);
        crowd.wait(key(1), owner("other", number), Mode::Read);
    }
    crowd.print("one owner again and again");
    assert!(crowd.most_steps <= 8, "{}", crowd.most_steps);
}

#[test]
fn a_task_with_a_thousand_names_costs_no_more_than_one_with_two() {
    let mut crowd = Crowd::default();
    let name = |number| name("task", number);
    crowd.hold(key(0), &name(0), Mode::Write);
    crowd.hold(key(1), &owner("other", 0), Mode::Write);
    for number in 1..CROWD {
        crowd.wait(key(0), name(number), Mode::Write);
    }
    // Another owner stands in the same queue, and is in no cycle with them.
    crowd.wait(key(0), owner("waiter", 0), Mode::Write);
    crowd.wait(key(0), name(CROWD), Mode::Write);
    crowd.wait(key(1), name(CROWD + 1), Mode::Write);
    assert!(crowd.closes(&wait(key(0), owner("other", 0), Mode::Write)));
    crowd.print("a task with many names");
    assert!(crowd.most_steps <= 8, "{}", crowd.most_steps);
}

/// Each of `length` holds a lock and waits for the next one; the last one does not wait yet.
fn chain(length: usize) -> Crowd {
    let mut crowd = Crowd::default();
    crowd.add_chain(length);
    crowd
}

#[test]
fn a_ring_of_a_thousand_is_found_and_a_longer_one_costs_no_more() {
    for length in [2, 10, 999, 1_000] {
        let mut crowd = chain(length);
        let closing = wait(key(0), owner("link", length - 1), Mode::Write);
        assert!(crowd.closes(&closing), "{length}");
        assert!(crowd.most_steps <= 3 * length, "{}", crowd.most_steps);
        crowd.print("a ring");
    }
    let mut crowd = chain(20_000);
    assert!(!crowd.closes(&wait(key(0), owner("link", 19_999), Mode::Write)));
    assert!(crowd.most_steps >= 1_000, "{}", crowd.most_steps);
    crowd.print("a ring of 20,000");
}

/// An owner of `task`.
fn name(task: &str, number: usize) -> Owner {
    named(&format!("{task}##{number}"))
}

/// Adds so many tasks that wait for the lock of `asking`, so that its waits are searched.
fn add_waiters(crowd: &mut Crowd, asking: &Owner) {
    crowd.hold(key(100_000), asking, Mode::Write);
    crowd.push_all(&key(100_000), "blocked", 3);
}

#[test]
fn five_thousand_owners_of_one_task_at_a_key_hide_no_cycle() {
    for (first, mode) in [("task", Mode::Write), ("task", Mode::Read)] {
        let mut crowd = Crowd::default();
        crowd.hold(key(0), &name(first, 0), Mode::Write);
        crowd.hold(key(1), &owner("asking", 0), Mode::Write);
        for number in 1..=5_000 {
            crowd.push(wait(key(1), name(first, number), mode));
        }
        // Others wait there and elsewhere, too.
        crowd.push_all(&key(1), "other", 500);
        crowd.hold(key(2), &owner("holder", 0), Mode::Write);
        crowd.push_all(&key(2), "other", 500);
        let closing = wait(key(0), owner("asking", 0), Mode::Write);
        assert!(crowd.closes(&closing));
        // The lock that the 5,000 wait for is another one's, which waits for the asking owner.
        crowd.free(&key(1));
        crowd.hold(key(1), &owner("between", 0), Mode::Write);
        crowd.hold(key(3), &owner("asking", 0), Mode::Write);
        crowd.push(wait(key(3), owner("between", 0), Mode::Write));
        crowd.observe(&key(1));
        assert!(crowd.closes(&closing));
        crowd.print("5,000 owners of one task");
    }
}

#[test]
fn a_task_that_waits_at_a_thousand_keys_is_searched_within_the_steps() {
    let mut crowd = Crowd::default();
    let asking = name("asking", 0);
    add_waiters(&mut crowd, &asking);
    crowd.hold(key(0), &owner("holder", 0), Mode::Write);
    for number in 1..1_000 {
        crowd.hold(key(number), &owner("holder", number), Mode::Write);
        for waiting in 0..20 {
            crowd.push(wait(
                key(number),
                owner("waiter", 20 * (number / 2) + waiting),
                Mode::Write,
            ));
        }
        crowd.push(wait(key(number), name("asking", number), Mode::Write));
    }
    crowd.push_all(&key(0), "waiter", 10_000);
    assert!(!crowd.closes(&wait(key(0), asking, Mode::Write)));
    crowd.print("a task that waits at a thousand keys");
}

#[test]
fn a_task_that_waits_at_ten_thousand_keys_is_followed_a_page_at_a_time() {
    let mut crowd = Crowd::default();
    for number in 0..10_000 {
        crowd.push(wait(key(number), name("asking", number), Mode::Write));
    }
    let again = wait(key(0), name("asking", 0), Mode::Write);
    let searched = measure(|| assert!(!crowd.closes(&again)));
    crowd.print("a task that waits at ten thousand keys");
    assert!(crowd.most_steps <= 4_000, "{}", crowd.most_steps);
    // Only those that are followed are remembered.
    assert!(searched.bytes_max < 1_000_000, "{searched:?}");
}

#[test]
fn many_tasks_that_each_wait_at_many_keys_are_searched_within_the_steps() {
    let mut crowd = Crowd::default();
    let asking = name("asking", 0);
    add_waiters(&mut crowd, &asking);
    for number in 0..300 {
        crowd.hold(key(number), &name("holder", number), Mode::Write);
    }
    for number in 0..200 {
        for nth in 0..30 {
            let at = (number * 7 + nth * 11) % 300;
            let mode = mixed(number + nth);
            crowd.push(wait(key(at), name("holder", number + 1_000 * nth), mode));
        }
    }
    assert!(!crowd.closes(&wait(key(0), asking, Mode::Write)));
    crowd.print("200 tasks that wait at 30 keys each");
}
