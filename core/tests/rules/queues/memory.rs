//! The memory of waiters, all tables included.

use allocation_counter::measure;

use mortise_core::{
    Db, Instant, KeyId, KeyRef, Lock, Mode, Owner, PendingRequest, Queues, Request, Terms,
    TokenClock, Turn,
};

use crate::requests::{for_one, named, terms};

const CROWD: usize = 20_000;
const NOW: Instant = Instant::from_millis(1_000);

/// An owner as clients make it: a UUID and a counter.
fn owner(number: usize) -> Owner {
    named(&format!("{number:08x}-d9cb-469f-a165-70867728950e##1z"))
}

fn waits(queues: &mut Queues, key: &str, number: usize, until: Instant) {
    let terms = Terms {
        client: number as u64,
        ..terms(Mode::Write, 30_000)
    };
    let key = KeyId {
        db: Db(0),
        name: key.as_bytes().into(),
    };
    queues.push(&PendingRequest {
        until,
        ..for_one(&key, owner(number), terms, Lock::free(), NOW)
    });
}

fn key_of(name: &str) -> KeyRef<'_> {
    KeyRef {
        db: Db(0),
        name: name.as_bytes(),
    }
}

/// A lock of another owner, as the queues observe it.
fn observe(queues: &mut Queues, key: &str, holder: usize) {
    let (mut lock, holder) = (Lock::free(), owner(holder));
    let request = Request {
        owner: holder.as_ref(),
        terms: terms(Mode::Write, 30_000),
    };
    let granted = lock.at(NOW, |_, _| {}).acquire(
        &request,
        Turn::First,
        &mut TokenClock::new(),
        mortise_core::Micros(0),
    );
    granted.expect("it is free");
    queues.observe(key_of(key), lock.observe());
}

/// The bytes that a waiter takes, at the key that `key` returns.
fn bytes(key: impl Fn(usize) -> String) -> u64 {
    let count = measure(|| {
        let mut queues = Queues::new();
        for number in 0..CROWD {
            let limit = NOW.after(number as u64 * 7_919 % 60_000);
            waits(&mut queues, &key(number), number, limit);
            observe(&mut queues, &key(number), CROWD + number);
        }
        std::mem::forget(queues);
    });
    count.bytes_current as u64 / CROWD as u64
}

#[test]
fn a_waiter_takes_little_memory_in_a_shared_queue_and_at_its_own_key() {
    let one_queue = bytes(|_| "{tenant}:orders:1".to_owned());
    let key_each = bytes(|number| format!("{{tenant}}:orders:{number:08}"));
    println!("{one_queue} bytes in one queue, {key_each} at a key of its own");
    assert!(one_queue <= 310, "{one_queue} bytes in one queue");
    assert!(key_each <= 540, "{key_each} bytes at a key of its own");
}

#[test]
fn a_crowd_that_has_left_frees_its_memory_though_a_few_stay() {
    let mut queues = Queues::new();
    let count = measure(|| {
        for number in 0..CROWD {
            let key = format!("key:{}", number % 1_000);
            waits(&mut queues, &key, number, NOW.after(number as u64));
            observe(&mut queues, &key, CROWD + number);
        }
    });
    let gone = measure(|| {
        let ids: Vec<_> = (1..=CROWD as u64).map(mortise_core::WaiterId).collect();
        for id in ids.into_iter().filter(|id| id.0 % 2_000 != 0) {
            assert!(queues.remove(id).is_some());
        }
    });
    assert_eq!(queues.len(), 10);
    let left = count.bytes_current + gone.bytes_current;
    assert!(left < 150_000, "{left} of {} bytes", count.bytes_current);
}
