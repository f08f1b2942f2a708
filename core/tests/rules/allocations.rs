//! The memory of locks: a common lock allocates nothing, a step among many readers little, and all of it is freed.

use allocation_counter::{AllocationInfo, measure};
use mortise_core::codec::{Arrival, BootId, Effect, Stamp, decode_effect, encode_effect};
use mortise_core::{
    AcquireError, Grant, How, Lease, LeaseId, LeaseOrder, Lock, Micros, Mode, Owner, Release,
    Token, TokenClock, Turn,
};

use crate::requests::{NOW, WALL, owner, request};

/// Owners up to this length live in the lock, and so do UUIDs with up to 6 bytes behind them.
const INLINE: usize = 22;
const UUID: &[u8] = b"0f8fad5b-d9cb-469f-a165-70867728950e";

fn lease(ms: u64) -> Lease {
    Lease::from_millis(ms).expect("at least 1")
}

fn acquire(
    lock: &mut Lock,
    tokens: &mut TokenClock,
    name: &[u8],
    mode: Mode,
) -> Result<Grant, AcquireError> {
    lock.at(NOW, |_, _| {})
        .acquire(&request(name, mode, 30_000), Turn::First, tokens, WALL)
}

fn release(lock: &mut Lock, name: &[u8]) {
    let release = Release {
        owner: owner(name),
        how: How::One(None),
        token: None,
    };
    lock.at(NOW, |_, _| {}).release(&release).expect("held");
}

fn renew(lock: &mut Lock, name: &[u8], ms: u64) {
    let renewed = lock.at(NOW, |_, _| {}).renew(owner(name), lease(ms), None);
    assert!(renewed.is_some());
}

#[test]
fn locks_and_owners_keep_their_size_in_memory() {
    assert_eq!(size_of::<Lock>(), 56);
    assert_eq!(size_of::<Owner>(), 24);
    assert_eq!(size_of::<Option<Owner>>(), 24);
    assert_eq!(size_of::<Option<LeaseId>>(), 4);
}

#[test]
fn a_lock_with_one_short_or_uuid_owner_allocates_nothing() {
    let tagged = [UUID, b":12345"].concat();
    for name in [&b"o"[..], &[b'o'; INLINE], UUID, &tagged] {
        let (mut lock, mut tokens) = (Lock::free(), TokenClock::new());
        let count = measure(|| {
            for mode in [Mode::Write, Mode::Read] {
                acquire(&mut lock, &mut tokens, name, mode).expect("free");
                acquire(&mut lock, &mut tokens, name, mode).expect("its own");
                renew(&mut lock, name, 60_000);
                lock.at(NOW, |_, _| {})
                    .fence(owner(name), Token::MAX, &mut tokens, Micros(u64::MAX))
                    .expect("within the bound");
                tokens = TokenClock::new();
                release(&mut lock, name);
                release(&mut lock, name);
                assert!(lock.is_free());
            }
        });
        assert_eq!(count, AllocationInfo::default(), "{}", name.escape_ascii());
    }
}

#[test]
fn a_longer_owner_is_allocated_once_and_freed_with_its_hold() {
    for len in [INLINE + 1, 255] {
        let name = vec![b'o'; len];
        let (mut lock, mut tokens) = (Lock::free(), TokenClock::new());
        let held = measure(|| {
            acquire(&mut lock, &mut tokens, &name, Mode::Write).expect("free");
            acquire(&mut lock, &mut tokens, &name, Mode::Read).expect("its own");
            renew(&mut lock, &name, 60_000);
        });
        assert_eq!((held.count_total, held.bytes_total), (1, len as u64));
        assert_eq!(lock.heap_size(), len);
        let over = measure(|| {
            lock.at(NOW.after(60_000), |_, _| {});
        });
        assert_eq!((over.count_total, over.bytes_current), (0, -(len as i64)));
        assert!(lock.is_free());
    }
}

#[test]
fn refused_requests_allocate_nothing() {
    for len in [1, 255] {
        let (holder, name) = (vec![b'h'; len], vec![b'o'; len]);
        let (mut lock, mut tokens) = (Lock::free(), TokenClock::new());
        acquire(&mut lock, &mut tokens, &holder, Mode::Write).expect("free");
        let count = measure(|| {
            assert!(acquire(&mut lock, &mut tokens, &name, Mode::Write).is_err());
            assert!(acquire(&mut lock, &mut tokens, &name, Mode::Read).is_err());
            let mut live = lock.at(NOW, |_, _| {});
            assert!(live.renew(owner(&name), lease(1), None).is_none());
            let release = Release {
                owner: owner(&name),
                how: How::All,
                token: None,
            };
            assert!(live.release(&release).is_err());
        });
        assert_eq!(count.count_total, 0, "{len} bytes");
    }
}

const READERS: u64 = 10_000;

/// The most that a step on one of 10,000 readers may allocate: a new node on each level of the
/// two trees (nodes hold 5 to 11 entries, so 6 levels), and copies of a long owner.
const NODES: u64 = 2 * 6;

/// An owner `len` bytes long, a UUID if that fits.
fn reader(number: u64, len: usize) -> Vec<u8> {
    let mut name = UUID.to_vec();
    // Neither in ascending nor in descending order.
    name[..5].copy_from_slice(format!("{:05}", number * 7_919 % READERS).as_bytes());
    name.resize(len, b'.');
    name
}

fn held_by_readers(len: usize) -> (Lock, TokenClock) {
    let (mut lock, mut tokens) = (Lock::free(), TokenClock::new());
    for number in 0..READERS {
        acquire(&mut lock, &mut tokens, &reader(number, len), Mode::Read).expect("compatible");
    }
    assert_eq!(lock.len() as u64, READERS);
    (lock, tokens)
}

/// Performs `step` for every reader. No step may allocate more than `most` times, nor all
/// together more than `often` times a reader.
fn assert_bounded(len: usize, most: u64, often: u64, mut step: impl FnMut(&[u8], u64)) {
    let mut total = 0;
    for number in 0..READERS {
        let name = reader(number, len);
        let count = measure(|| step(&name, number));
        assert!(count.count_total <= most, "{count:?}");
        // A node of 11 entries of 56 bytes and its edges.
        assert!(count.bytes_max <= most * 800, "{count:?}");
        total += count.count_total;
    }
    assert!(total <= often * READERS, "{total} in all");
}

#[test]
fn one_step_of_a_reader_among_10_000_allocates_a_few_nodes_at_most() {
    for (len, copies) in [(36, 0), (200, 3)] {
        let (mut lock, mut tokens) = held_by_readers(len);
        assert_bounded(len, copies + NODES, copies + 1, |name, number| {
            renew(&mut lock, name, 40_000 + number * 31 % READERS);
        });
        assert_bounded(len, copies, copies, |name, _| {
            acquire(&mut lock, &mut tokens, name, Mode::Read).expect("its own");
        });
        assert_bounded(len, copies, copies, |name, _| release(&mut lock, name));
        assert_bounded(len, 0, 0, |_, _| {
            assert_eq!(lock.next_deadline(), lock.next_deadline().max(Some(NOW)));
            assert_eq!(lock.mode(NOW), Some(Mode::Read));
        });
        // The list of free slots grows as well.
        assert_bounded(len, copies + 3, copies + 1, |name, _| {
            release(&mut lock, name)
        });
        assert!(lock.is_free());
    }
}

#[test]
fn readers_that_leave_free_all_their_memory() {
    for len in [36, 200] {
        let names: Vec<Vec<u8>> = (0..READERS).map(|number| reader(number, len)).collect();
        let count = measure(|| {
            let (mut lock, _) = held_by_readers(len);
            for name in &names {
                release(&mut lock, name);
            }
            let (mut expiring, _) = held_by_readers(len);
            expiring.at(NOW.after(30_000), |_, _| {});
            assert!(lock.is_free() && expiring.is_free());
            std::mem::forget((lock, expiring));
        });
        assert_eq!((count.count_current, count.bytes_current), (0, 0));
    }
}

#[test]
fn the_reported_heap_size_is_near_the_true_one() {
    for len in [36, 200] {
        for readers in [2, 3, 12, 100, READERS] {
            let (mut lock, mut tokens) = (Lock::free(), TokenClock::new());
            let count = measure(|| {
                for number in 0..readers {
                    let name = reader(number, len);
                    acquire(&mut lock, &mut tokens, &name, Mode::Read).expect("compatible");
                }
            });
            let (told, real) = (lock.heap_size() as f64, count.bytes_current as f64);
            assert!(
                (0.7..1.5).contains(&(told / real)),
                "{readers} of {len} bytes: {told} reported, {real} allocated"
            );
        }
    }
}

#[test]
fn effects_are_written_and_read_without_allocating() {
    let (mut lock, mut tokens) = (Lock::free(), TokenClock::new());
    let name = [b'o'; 255];
    acquire(&mut lock, &mut tokens, &name, Mode::Write).expect("free");
    let stake = lock.hold(owner(&name)).expect("held");
    let stamp = Stamp {
        boot_id: BootId::default(),
        machine: None,
        boot: NOW,
        wall_ms: 0,
    };
    let mut bytes = Vec::with_capacity(512);
    let count = measure(|| {
        let effect = Effect::Sole(owner(&name), stake);
        encode_effect(&effect, tokens.last(), &stamp, &mut bytes);
        decode_effect(&bytes, Arrival::Live, &stamp).expect("bytes of an effect");
    });
    assert_eq!(count.count_total, 0);
}

#[test]
fn a_lease_that_is_released_in_time_leaves_nothing_in_the_order() {
    let mut order = LeaseOrder::new();
    order.insert(NOW.after(1), 0);
    let count = measure(|| {
        for number in 1..100_000_u64 {
            let now = NOW.after(number * 10);
            while let Some((id, _)) = order.due(now) {
                order.remove(id);
            }
            let id = order.insert(now.after(30_000), number);
            order.reschedule(id, now.after(60_000));
            assert_eq!(order.remove(id), Some(number));
        }
    });
    assert_eq!((count.count_total, count.bytes_current), (0, 0));
}
