//! Boxes: those that are there, and what is left of those that have gone.

use std::collections::{BTreeMap, HashMap, HashSet, btree_set, hash_map, hash_set};
use std::hash::Hash;
use std::rc::Rc;

use super::letter::{BoxId, Letter};
use crate::key::KeyId;
use crate::owner::Owner;
use crate::queues::WaiterId;
use crate::types::Instant;

#[derive(Debug)]
pub(super) struct Mailbox {
    pub(super) name: Rc<[u8]>,
    pub(super) user: Box<[u8]>,
    /// When it was asked for last.
    pub(super) asked: Instant,
    /// Since when a letter is told and not forgotten.
    pub(super) told_since: Option<Instant>,
    /// Up to which number letters were told.
    pub(super) told: u64,
    pub(super) letters: BTreeMap<u64, Letter>,
    pub(super) requests: HashSet<WaiterId>,
}

impl Mailbox {
    pub(super) fn len(&self) -> usize {
        self.requests.len() + self.letters.len()
    }
}

/// What has not left yet of a box that has gone.
#[derive(Debug)]
pub(super) struct Leftover {
    pub(super) told: u64,
    pub(super) letters: BTreeMap<u64, Letter>,
    pub(super) requests: hash_set::IntoIter<WaiterId>,
}

/// Boxes that have gone together, and have not been looked at one by one.
#[derive(Debug)]
pub(super) struct Crowd {
    pub(super) boxes: hash_map::IntoIter<BoxId, Mailbox>,
    pub(super) names: hash_map::IntoIter<Rc<[u8]>, BoxId>,
    pub(super) by_asked: btree_set::IntoIter<(Instant, BoxId)>,
}

/// A table that a crowd has left keeps room for so many.
pub(super) const ROOM_KEPT: usize = 64;

/// Few are left of what may have been a crowd.
pub(super) fn give_room_back<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if map.len() <= ROOM_KEPT && map.capacity() > 4 * ROOM_KEPT {
        map.shrink_to(2 * ROOM_KEPT);
    }
}

/// Where a letter is found by its owner.
pub(super) fn entry(letter: &Letter, id: BoxId, number: u64) -> (Owner, KeyId, BoxId, u64) {
    (letter.owner.clone(), letter.key.clone(), id, number)
}
