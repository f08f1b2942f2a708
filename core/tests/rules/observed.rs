//! What the queues can read of a lock without opening its key.

use mortise_core::{How, Lock, Mode, Release, TokenClock, Turn};

use crate::requests::{NOW, WALL, owner, request};

fn acquire(lock: &mut Lock, name: &[u8], mode: Mode, ms: u64) {
    let granted = lock.at(NOW, |_, _| {}).acquire(
        &request(name, mode, ms),
        Turn::First,
        &mut TokenClock::new(),
        WALL,
    );
    granted.expect("compatible");
}

fn release(lock: &mut Lock, name: &[u8]) {
    let release = Release {
        owner: owner(name),
        how: How::All,
        token: None,
    };
    lock.at(NOW, |_, _| {}).release(&release).expect("held");
}

fn held_by_readers(names: &[&[u8]]) -> (Lock, Lock) {
    let mut lock = Lock::free();
    for name in names {
        acquire(&mut lock, name, Mode::Read, 100);
    }
    let observed = lock.observe();
    (lock, observed)
}

#[test]
fn one_holder_is_observed_with_mode_and_deadline() {
    let mut lock = Lock::free();
    assert!(lock.observe().is_free());
    acquire(&mut lock, b"a", Mode::Write, 100);
    acquire(&mut lock, b"a", Mode::Read, 100);
    let observed = lock.observe();
    assert_eq!(observed.next_deadline(), Some(NOW.after(100)));
    assert!(
        observed.live_hold(owner(b"a"), NOW).is_some()
            && observed.live_hold(owner(b"b"), NOW).is_none()
    );
    assert!(observed.live_hold(owner(b"a"), NOW.after(100)).is_none());
    let (last, over) = (NOW.after(99), NOW.after(100));
    assert_eq!((observed.live_len(last), observed.live_len(over)), (1, 0));
    let modes = (observed.mode(last), observed.mode(over));
    assert_eq!(modes, (Some(Mode::Write), None));
}

#[test]
fn the_only_holder_holds_for_its_task_until_its_lease_is_over() {
    let mut lock = Lock::free();
    acquire(&mut lock, b"a##1", Mode::Write, 100);
    let observed = lock.observe();
    let holds = |except, now| observed.is_held_for_task(owner(b"a##2"), except, now);
    assert!(holds(None, NOW.after(99)) && holds(Some(owner(b"a##2")), NOW));
    assert!(!holds(None, NOW.after(100)) && !holds(None, NOW.after(101)));
    assert!(!holds(Some(owner(b"a##1")), NOW));
    assert!(!observed.is_held_for_task(owner(b"b##1"), None, NOW));
}

#[test]
fn readers_are_observed_as_they_come_and_go() {
    let (mut lock, readers) = held_by_readers(&[b"a", b"b"]);
    acquire(&mut lock, b"c", Mode::Read, 200);
    release(&mut lock, b"a");
    assert!(
        readers.live_hold(owner(b"c"), NOW).is_some()
            && readers.live_hold(owner(b"a"), NOW).is_none()
    );
    assert_eq!(
        (readers.live_len(NOW), readers.live_len(NOW.after(100))),
        (2, 1)
    );
    let seen = |now| {
        let seen = readers.live_holds(now, 10).into_iter();
        seen.map(|(owner, _)| owner.text().to_vec())
            .collect::<Vec<_>>()
    };
    assert_eq!(seen(NOW.after(100)), [b"c"]);
    assert_eq!(seen(NOW), [b"b", b"c"]);
}

#[test]
fn a_copy_of_a_lock_has_its_own_readers() {
    let (mut lock, readers) = held_by_readers(&[b"a", b"b", b"c"]);
    let mut copy = lock.clone();
    release(&mut copy, b"a");
    assert!(readers.live_hold(owner(b"a"), NOW).is_some());
    release(&mut lock, b"b");
    assert!(copy.hold(owner(b"b")).is_some());
}

#[test]
fn no_reader_is_observed_after_the_lock_is_dropped() {
    let (lock, readers) = held_by_readers(&[b"a", b"b"]);
    drop(lock);
    assert!(
        readers.live_hold(owner(b"a"), NOW).is_none()
            && !readers.is_held_for_task(owner(b"a##"), None, NOW)
    );
    assert_eq!(readers.live_len(NOW), 0);
}

#[test]
fn a_task_holds_only_while_one_of_its_owners_does() {
    let (mut lock, readers) = held_by_readers(&[b"a##1", b"a##x##2", b"b##1", b"c"]);
    assert!(
        readers.is_held_for_task(owner(b"a##"), None, NOW)
            && readers.is_held_for_task(owner(b"a##x##"), None, NOW)
    );
    assert!(
        !readers.is_held_for_task(owner(b"c##"), None, NOW)
            && !readers.is_held_for_task(owner(b"a##"), None, NOW.after(100))
    );
    release(&mut lock, b"a##1");
    assert!(!readers.is_held_for_task(owner(b"a##"), None, NOW));
}
