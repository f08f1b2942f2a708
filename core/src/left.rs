//! Owners that have left a key (`LOCK.LEAVE … FOR`): their late requests change nothing.
//!
//! A name is stored as a hash of 128 bits, so a long key costs no more than a short one. That two names share a hash is less likely than a
//! failure of memory. The table keeps the names that left last, up to [`Left::ROOM`], and forgets the expired ones a few at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};

use crate::key::KeyRef;
use crate::owner::OwnerRef;
use crate::types::Instant;

/// A database, a key and an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Name(u64, u64);

#[derive(Clone, Copy, Debug)]
struct Entry {
    until: Instant,
    /// The last departure.
    departure: u64,
}

/// Which owners have left which keys, and until when they stay away.
#[derive(Debug, Default)]
pub struct Left {
    hashers: [RandomState; 2],
    names: BTreeMap<Name, Entry>,
    /// By the last departure, the longest ago first.
    order: BTreeMap<u64, Name>,
    ends: BTreeSet<(Instant, Name)>,
    departures: u64,
}

impl Left {
    /// How many names are remembered at most.
    pub const ROOM: usize = 100_000;

    /// No owner has left.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many names are remembered.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// No name is remembered.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// `owner` leaves the key until `until`. An earlier departure that lasts longer stays.
    pub fn leave(&mut self, key: KeyRef<'_>, owner: OwnerRef<'_>, until: Instant) {
        let name = self.name(key, owner);
        self.departures += 1;
        let departure = self.departures;
        let before = self.forget(name).map(|entry| entry.until);
        let until = before.map_or(until, |before| before.max(until));
        self.names.insert(name, Entry { until, departure });
        self.ends.insert((until, name));
        self.order.insert(departure, name);
        if self.names.len() > Self::ROOM
            && let Some((_, first)) = self.order.first_key_value()
        {
            self.forget(*first);
        }
    }

    /// `owner` stays away from the key at `now`.
    pub fn has_left(&self, key: KeyRef<'_>, owner: OwnerRef<'_>, now: Instant) -> bool {
        if self.names.is_empty() {
            return false;
        }
        let entry = self.names.get(&self.name(key, owner));
        entry.is_some_and(|entry| now < entry.until)
    }

    /// Forgets up to `most` names whose time is over at `now`. True if there may be more.
    pub fn forget_over(&mut self, now: Instant, most: usize) -> bool {
        for _ in 0..most {
            match self.ends.first() {
                Some(&(until, name)) if until <= now => self.forget(name),
                _ => return false,
            };
        }
        true
    }

    fn forget(&mut self, name: Name) -> Option<Entry> {
        let entry = self.names.remove(&name)?;
        self.ends.remove(&(entry.until, name));
        self.order.remove(&entry.departure);
        Some(entry)
    }

    fn name(&self, key: KeyRef<'_>, owner: OwnerRef<'_>) -> Name {
        let owner = owner.text();
        let hash = |hasher: &RandomState| hasher.hash_one((key, &*owner));
        let [one, other] = &self.hashers;
        Name(hash(one), hash(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Db;

    fn owner(name: &str) -> OwnerRef<'_> {
        OwnerRef::new(name.as_bytes()).expect("in bounds")
    }

    fn key(db: u32, name: &[u8]) -> KeyRef<'_> {
        KeyRef { db: Db(db), name }
    }

    const fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn a_name_stays_away_for_its_time_and_a_later_shorter_time_does_not_shorten_it() {
        let mut left = Left::new();
        left.leave(key(0, b"k"), owner("a"), at(100));
        left.leave(key(0, b"k"), owner("a"), at(50));
        assert!(!left.is_empty());
        assert!(left.has_left(key(0, b"k"), owner("a"), at(99)));
        assert!(!left.has_left(key(0, b"k"), owner("a"), at(100)));
        assert!(!left.has_left(key(1, b"k"), owner("a"), at(0)));
        assert!(!left.has_left(key(0, b"l"), owner("a"), at(0)));
        assert!(!left.has_left(key(0, b"k"), owner("b"), at(0)));
    }

    #[test]
    fn the_names_that_left_last_are_kept() {
        let mut left = Left::new();
        let name = |i: usize| i.to_string();
        for i in 0..=Left::ROOM {
            left.leave(key(0, b"k"), owner(&name(i)), at(1_000));
            // The second one leaves again and again, so it is never among the first ones.
            left.leave(key(0, b"k"), owner("1"), at(1_000));
        }
        assert_eq!(left.len(), Left::ROOM);
        assert!(!left.has_left(key(0, b"k"), owner("0"), at(0)));
        assert!(left.has_left(key(0, b"k"), owner("1"), at(0)));
        assert!(left.has_left(key(0, b"k"), owner(&name(Left::ROOM)), at(0)));
        assert_eq!(left.order.len(), Left::ROOM);
    }

    #[test]
    fn ended_names_are_forgotten_a_few_at_a_time_and_leave_nothing() {
        let mut left = Left::new();
        for i in 0..10_u64 {
            left.leave(key(0, b"k"), owner(&i.to_string()), at(i));
        }
        assert!(left.forget_over(at(100), 4));
        assert_eq!(left.len(), 6);
        assert!(!left.forget_over(at(7), 100));
        assert_eq!(left.len(), 2);
        assert!(!left.forget_over(at(100), 100));
        assert!(left.is_empty());
        assert_eq!((left.order.len(), left.ends.len()), (0, 0));
    }
}
