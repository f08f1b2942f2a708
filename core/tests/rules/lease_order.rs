//! The lease order, compared with a sorted set: no entry is due before its deadline, every entry is due 32 ms after it, and a removed entry
//! leaves nothing.

use std::collections::{BTreeMap, BTreeSet};

use allocation_counter::measure;
use mortise_core::{Instant, LeaseId, LeaseOrder};
use proptest::prelude::*;

/// The width of a bucket: a deadline may be noticed this late.
const WIDTH: u64 = 32;
const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

#[derive(Clone, Debug)]
enum Step {
    Insert {
        after: i64,
    },
    Remove {
        nth: usize,
    },
    Reschedule {
        nth: usize,
        after: i64,
    },
    /// Time passes without a call of `due`.
    Pause(u64),
    /// Removes due entries, up to this many, and postpones every second one by this much.
    Sweep {
        most: usize,
        put_off: Option<u64>,
    },
}

fn spans() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => 0..2 * WIDTH,
        4 => 0..10_000_u64,
        4 => 0..HOUR,
        1 => 0..3 * DAY,
        1 => Just(0),
    ]
}

/// Mostly ahead, sometimes past.
fn offsets() -> impl Strategy<Value = i64> {
    prop_oneof![
        9 => spans().prop_map(u64::cast_signed),
        1 => spans().prop_map(|span| -span.cast_signed()),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => offsets().prop_map(|after| Step::Insert { after }),
        30 => any::<usize>().prop_map(|nth| Step::Remove { nth }),
        20 => (any::<usize>(), offsets()).prop_map(|(nth, after)| Step::Reschedule { nth, after }),
        30 => spans().prop_map(Step::Pause),
        20 => (
            prop_oneof![1 => 0..4_usize, 2 => Just(usize::MAX)],
            prop::option::weighted(0.2, spans()),
        )
            .prop_map(|(most, put_off)| Step::Sweep { most, put_off }),
    ]
}

proptest! {
    #![proptest_config(crate::random::config(1_000))]

    #[test]
    fn the_order_reports_due_entries_like_a_sorted_set(
        boot in 0..DAY,
        steps in prop::collection::vec(steps(), 1..300),
    ) {
        let mut world = World::new(boot);
        for step in steps {
            world.step(&step);
            world.check();
        }
        world.pause_and_drain();
    }
}

/// An order, and a model of it.
struct World {
    order: LeaseOrder<u64>,
    now: u64,
    /// By key, which distinguishes entries.
    entries: BTreeMap<u64, Entry>,
    /// By the moment from which an entry is due: a deadline in the past counts from when it was
    /// set.
    by_due: BTreeSet<(u64, u64)>,
    inserted: u64,
}

struct Entry {
    id: LeaseId,
    deadline: u64,
    /// The later of the deadline and the moment it was set.
    due: u64,
}

impl World {
    fn new(boot: u64) -> Self {
        Self {
            order: LeaseOrder::new(),
            now: boot,
            entries: BTreeMap::new(),
            by_due: BTreeSet::new(),
            inserted: 0,
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Insert { after } => self.insert(self.now.saturating_add_signed(after)),
            Step::Remove { nth } => {
                if let Some(key) = self.nth(nth) {
                    self.remove(key);
                }
            }
            Step::Reschedule { nth, after } => {
                if let Some(key) = self.nth(nth) {
                    self.reschedule(key, self.now.saturating_add_signed(after));
                }
            }
            Step::Pause(ms) => self.now += ms,
            Step::Sweep { most, put_off } => self.sweep(most, put_off),
        }
    }

    fn nth(&self, nth: usize) -> Option<u64> {
        let len = self.entries.len().max(1);
        self.entries.keys().nth(nth % len).copied()
    }

    fn insert(&mut self, deadline: u64) {
        let key = self.inserted;
        self.inserted += 1;
        let id = self.order.insert(at(deadline), key);
        let due = deadline.max(self.now);
        self.entries.insert(key, Entry { id, deadline, due });
        self.by_due.insert((due, key));
    }

    fn reschedule(&mut self, key: u64, deadline: u64) {
        let entry = self.entries.get_mut(&key).expect("there");
        self.order.reschedule(entry.id, at(deadline));
        self.by_due.remove(&(entry.due, key));
        (entry.deadline, entry.due) = (deadline, deadline.max(self.now));
        self.by_due.insert((entry.due, key));
    }

    fn remove(&mut self, key: u64) {
        let entry = self.entries.remove(&key).expect("there");
        self.by_due.remove(&(entry.due, key));
        assert_eq!(self.order.remove(entry.id), Some(key));
        assert_eq!(self.order.get(entry.id), None);
        assert_eq!(self.order.remove(entry.id), None);
        self.order.reschedule(entry.id, at(self.now));
    }

    fn sweep(&mut self, most: usize, put_off: Option<u64>) {
        for round in 0..most {
            let Some((id, &key)) = self.order.due(at(self.now)) else {
                // Only what became due within a bucket's width may be missing.
                let missed = self.by_due.first().map(|(due, _)| *due);
                assert!(missed.is_none_or(|due| due + WIDTH > self.now));
                return;
            };
            assert_eq!(
                self.order.due(at(self.now)),
                Some((id, &key)),
                "until taken"
            );
            let entry = self.entries.get(&key).expect("an entry that is there");
            assert_eq!(entry.id, id);
            assert!(entry.deadline <= self.now, "due before its deadline");
            let first = self.by_due.first().map_or(0, |(deadline, _)| *deadline);
            assert!(entry.deadline < first + WIDTH, "an earlier deadline waits");
            match put_off {
                Some(ms) if round % 2 == 1 => self.reschedule(key, self.now + ms),
                _ => self.remove(key),
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.order.len(), self.entries.len());
        assert_eq!(self.order.is_empty(), self.entries.is_empty());
        for (key, entry) in &self.entries {
            assert_eq!(self.order.get(entry.id), Some(key));
        }
    }

    fn pause_and_drain(&mut self) {
        let last = self.by_due.last().map_or(0, |(due, _)| *due);
        self.now = self.now.max(last + WIDTH);
        self.sweep(usize::MAX, None);
        self.check();
        assert!(self.order.is_empty());
    }
}

#[test]
fn the_ends_of_time_are_valid_deadlines() {
    let mut order = LeaseOrder::new();
    order.insert(at(u64::MAX), "never");
    let zero = order.insert(at(0), "long ago");
    assert_eq!(order.due(at(5 + WIDTH)), Some((zero, &"long ago")));
    order.remove(zero);
    assert_eq!(order.due(at(1 << 50)), None);
    order.insert(at(1 << 51), "in between");
    assert_eq!(
        order.due(at(u64::MAX)).map(|(_, key)| *key),
        Some("in between")
    );
}

/// As on a machine that was suspended, or on a replica, which calls `due` only after its promotion.
#[test]
fn a_century_without_a_call_of_due_is_crossed_at_once() {
    let century = 36_525 * DAY;
    let mut order = LeaseOrder::new();
    let early = order.insert(at(1_000), "early");
    let renewed = order.insert(at(1_000), "renewed");
    order.reschedule(renewed, at(century + 1_000));
    order.insert(at(century + 2_000), "late");
    assert_eq!(order.due(at(century)), Some((early, &"early")));
    order.remove(early);
    assert_eq!(order.due(at(century)), None);
    assert_eq!(order.due(at(century + 1_100)), Some((renewed, &"renewed")));
    order.remove(renewed);
    assert_eq!(order.due(at(century + 1_100)), None);
    assert_eq!(
        order.due(at(century + 2_100)).map(|(_, key)| *key),
        Some("late")
    );
}

#[test]
fn a_million_removed_entries_free_their_memory() {
    let mut order = LeaseOrder::new();
    let mut ids = Vec::with_capacity(1_000_000);
    let mut size = grown(|| {
        let id = order.insert(at(30_000), 0);
        order.remove(id);
    });
    let resting = size + SPARE;
    for round in 0..2_u64 {
        ids.clear();
        let now = round * DAY;
        let full = grown(|| {
            ids.extend((0..1_000_000).map(|i| order.insert(at(now + i * 977 % DAY), i)));
        });
        assert!(
            full > 1_000_000 * 24 && full < 1_000_000 * 64,
            "{full} bytes"
        );
        size += full;
        size += grown(|| {
            // Neither in the order they came nor in the reverse.
            for i in 0..1_000_000 {
                assert!(order.remove(ids[i * 611_953 % 1_000_000]).is_some());
            }
        });
        assert!(order.is_empty());
        assert!(size <= resting, "{size} bytes");
        assert_eq!(order.due(at(now + 2 * DAY)), None);
    }
    assert!(resting < 100_000, "{resting} bytes");
}

/// After a crowd, less than this stays allocated.
const SPARE: i64 = 4_096;

/// How many bytes are allocated more than before.
fn grown(act: impl FnOnce()) -> i64 {
    measure(act).bytes_current
}

#[test]
fn half_a_million_removed_entries_free_their_memory_though_one_stays() {
    const ALL: u64 = 500_000;
    for kept in [0, ALL / 2, ALL - 1] {
        let mut order = LeaseOrder::new();
        let mut ids: Vec<LeaseId> = Vec::with_capacity(ALL as usize);
        let full = grown(|| {
            ids.extend((0..ALL).map(|i| order.insert(at(30_000 + i % 1_000), i)));
        });
        let left = full
            + grown(|| {
                for (i, id) in ids.iter().enumerate() {
                    assert!(i as u64 == kept || order.remove(*id).is_some());
                }
            });
        // A few bytes for each chunk of entries.
        assert!(left < full / 20, "{left} of {full} bytes");
        assert_eq!(order.get(ids[kept as usize]), Some(&kept));
    }
}

#[test]
fn repeated_insert_and_remove_takes_no_more_memory_than_once() {
    let mut order = LeaseOrder::new();
    let kept = order.insert(at(30_000), 0);
    let more = grown(|| {
        for now in 1..1_000_000 {
            let id = order.insert(at(now + 30_000), now);
            assert_eq!(order.remove(id), Some(now));
        }
    });
    // A map that has become empty keeps its root.
    assert!(more < 200, "{more} bytes");
    assert_eq!(order.due(at(2_000_000)), Some((kept, &0)));
}
