//! Where the holds of one lock are kept. No rules here: see `lock.rs`.
//!
//! One holder, the common case, lives in the lock itself. Several (they can only be readers) live
//! in a map by owner, with their deadlines in order beside it, so that everything about one of
//! them stays O(log n).

use crate::owner::{Owner, OwnerRef};
use crate::readers::{self, Readers};
use crate::stake::{Packed, Stake};
use crate::types::Instant;

/// The holds on one key, in no order that means anything but by owner.
#[derive(Clone, Debug, Default)]
pub(crate) enum Store {
    #[default]
    Free,
    One(Owner, Packed),
    /// Two or more, all of them readers.
    Many(Box<Readers>),
}

impl Store {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Free => 0,
            Self::One(..) => 1,
            Self::Many(readers) => readers.len(),
        }
    }

    /// How many hold at `now`.
    pub(crate) fn live_len(&self, now: Instant) -> usize {
        match self {
            Self::Free => 0,
            Self::One(_, stake) => usize::from(!stake.is_over(now)),
            Self::Many(readers) => readers.len() - readers.over(now),
        }
    }

    pub(crate) fn get(&self, owner: OwnerRef<'_>) -> Option<Stake> {
        match self {
            Self::Free => None,
            Self::One(holder, stake) => (holder.as_ref() == owner).then(|| stake.unpack()),
            Self::Many(readers) => readers.get(owner),
        }
    }

    /// Adds a hold of an owner that has none. Beside others it must be a reader's, and so theirs.
    pub(crate) fn insert(&mut self, owner: Owner, stake: Stake) {
        match self {
            Self::Free => *self = Self::One(owner, Packed::of(&stake)),
            Self::One(..) => {
                let mut readers = Box::<Readers>::default();
                if let Self::One(first, first_stake) = std::mem::take(self) {
                    readers.insert(first, first_stake.unpack());
                }
                readers.insert(owner, stake);
                *self = Self::Many(readers);
            }
            Self::Many(readers) => readers.insert(owner, stake),
        }
    }

    /// Changes the hold of `owner`, which goes if nothing of it is left. `None` if there is none.
    pub(crate) fn alter<T>(
        &mut self,
        owner: OwnerRef<'_>,
        act: impl FnOnce(&mut Stake) -> T,
    ) -> Option<T> {
        match self {
            Self::Free => None,
            Self::One(holder, packed) => {
                if holder.as_ref() != owner {
                    return None;
                }
                let mut stake = packed.unpack();
                let outcome = act(&mut stake);
                if stake.total() == 0 {
                    *self = Self::Free;
                } else {
                    *packed = Packed::of(&stake);
                }
                Some(outcome)
            }
            Self::Many(readers) => {
                let outcome = readers.alter(owner, act);
                self.shrink();
                outcome
            }
        }
    }

    pub(crate) fn remove(&mut self, owner: OwnerRef<'_>) -> Option<Stake> {
        match self {
            Self::Free => None,
            Self::One(holder, stake) => {
                let stake = (holder.as_ref() == owner).then(|| stake.unpack())?;
                *self = Self::Free;
                Some(stake)
            }
            Self::Many(readers) => {
                let stake = readers.remove(owner)?;
                self.shrink();
                Some(stake)
            }
        }
    }

    /// One reader needs no map.
    fn shrink(&mut self) {
        if let Self::Many(readers) = self
            && readers.len() <= 1
        {
            *self = match readers.pop_next() {
                Some((owner, stake)) => Self::One(owner, Packed::of(&stake)),
                None => Self::Free,
            };
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        match self {
            Self::Free => None,
            Self::One(_, stake) => Some(stake.deadline()),
            Self::Many(readers) => readers.next_deadline(),
        }
    }

    pub(crate) fn last_deadline(&self) -> Option<Instant> {
        match self {
            Self::Free => None,
            Self::One(_, stake) => Some(stake.deadline()),
            Self::Many(readers) => readers.last_deadline(),
        }
    }

    /// Removes the hold whose lease is over for the longest, if there is one.
    pub(crate) fn pop_over(&mut self, now: Instant) -> Option<(Owner, Stake)> {
        if self.next_deadline()? > now {
            return None;
        }
        match self {
            Self::Free => None,
            Self::One(..) => match std::mem::take(self) {
                Self::One(owner, stake) => Some((owner, stake.unpack())),
                _ => None,
            },
            Self::Many(readers) => {
                let gone = readers.pop_next();
                self.shrink();
                gone
            }
        }
    }

    pub(crate) fn iter(&self) -> Holds<'_> {
        Holds(match self {
            Self::Free => Iter::One(None),
            Self::One(owner, stake) => Iter::One(Some((owner, *stake))),
            Self::Many(readers) => Iter::Many(readers.iter()),
        })
    }

    /// Bytes allocated outside the lock itself, as far as they can be told.
    pub(crate) fn heap_size(&self) -> usize {
        match self {
            Self::Free => 0,
            Self::One(owner, _) => owner.heap_size(),
            Self::Many(readers) => readers.size(),
        }
    }
}

/// The holds on one lock, by owner in byte order.
#[derive(Clone, Debug)]
pub struct Holds<'a>(Iter<'a>);

#[derive(Clone, Debug)]
enum Iter<'a> {
    One(Option<(&'a Owner, Packed)>),
    Many(readers::Iter<'a>),
}

impl<'a> Iterator for Holds<'a> {
    type Item = (&'a Owner, Stake);

    fn next(&mut self) -> Option<Self::Item> {
        let (owner, stake) = match &mut self.0 {
            Iter::One(one) => one.take()?,
            Iter::Many(many) => many.next()?,
        };
        Some((owner, stake.unpack()))
    }
}
