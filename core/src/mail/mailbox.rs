//! Boxes: the open ones, and what is left of the closed ones.

use std::collections::{BTreeMap, BTreeSet, btree_map, btree_set};
use std::rc::Rc;

use super::letter::{BoxId, Letter, Outcome};
use crate::homes::{Home, Homes};
use crate::key::Db;
use crate::queues::WaiterId;
use crate::types::Instant;

#[derive(Debug)]
pub(super) struct Mailbox {
    pub(super) name: Rc<[u8]>,
    pub(super) user: Box<[u8]>,
    /// When LOCK.MAIL last named it.
    pub(super) asked: Instant,
    /// When the connection of its newest LOCK.MAIL was closed while that waited.
    pub(super) lost: Option<Instant>,
    /// Since when a letter is delivered and not forgotten.
    pub(super) delivered_since: Option<Instant>,
    /// Up to which number letters were delivered.
    pub(super) delivered: u64,
    pub(super) letters: BTreeMap<u64, Stored>,
    pub(super) requests: BTreeSet<WaiterId>,
    /// How many keys its requests ask for beyond one each.
    pub(super) more_keys: usize,
}

impl Mailbox {
    pub(super) fn len(&self) -> usize {
        self.requests.len() + self.more_keys + self.letters.len()
    }
}

/// What is left of a closed box.
#[derive(Debug)]
pub(super) struct Leftover {
    pub(super) delivered: u64,
    pub(super) letters: BTreeMap<u64, Stored>,
    pub(super) requests: btree_set::IntoIter<WaiterId>,
}

/// Boxes that were closed together and not handled one by one yet, with their index entries, one for each box.
#[derive(Debug)]
pub(super) struct Crowd {
    pub(super) boxes: btree_map::IntoIter<BoxId, Mailbox>,
    pub(super) names: btree_map::IntoIter<Rc<[u8]>, BoxId>,
    pub(super) by_asked: btree_set::IntoIter<(Instant, BoxId)>,
    pub(super) by_lost: btree_set::IntoIter<(Instant, BoxId)>,
    pub(super) by_delivered: btree_set::IntoIter<(Instant, BoxId)>,
}

/// Where a letter's subject is. SWAPDB moves a lock, and with it the lock's grants, but no queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Queue(Db),
    Lock(Home),
}

/// A letter in a box.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) place: Place,
    pub(super) letter: Letter,
}

impl Stored {
    pub(super) fn new(letter: Letter, homes: &Homes) -> Self {
        let place = match letter.outcome {
            Outcome::Granted { .. } => Place::Lock(homes.home_of(letter.key.db)),
            Outcome::Denied | Outcome::Refused(_) => Place::Queue(letter.key.db),
        };
        Self { place, letter }
    }
}

impl Place {
    pub(super) fn db(self, homes: &Homes) -> Db {
        match self {
            Self::Queue(db) => db,
            Self::Lock(home) => homes.db_of(home),
        }
    }
}
