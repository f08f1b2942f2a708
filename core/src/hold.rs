//! Where the holds of one lock are kept. No rules here: see `live.rs`.
//!
//! One holder, the common case, lives in the lock itself. Several (they can only be readers) live
//! together (`readers.rs`).

use std::vec;

use crate::observed::{Observed, Shared};
use crate::owner::{Owner, OwnerRef};
use crate::readers::Readers;
use crate::remains::Remains;
use crate::stake::{Packed, Stake};
use crate::types::Instant;

/// The holds on one key. The only order that they have is by owner.
#[derive(Clone, Debug, Default)]
pub(crate) enum Store {
    #[default]
    Free,
    One(Owner, Packed),
    /// Two or more, all of them readers.
    Many(Shared),
}

impl Store {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Free => 0,
            Self::One(..) => 1,
            Self::Many(readers) => readers.with(|readers| readers.len()),
        }
    }

    /// How many hold at `now`.
    pub(crate) fn live_len(&self, now: Instant) -> usize {
        match self {
            Self::Free => 0,
            Self::One(_, stake) => usize::from(!stake.is_over(now)),
            Self::Many(readers) => readers.with(|readers| readers.live(now).len),
        }
    }

    /// The sum of the read counts of all that hold at `now`.
    pub(crate) fn live_reads(&self, now: Instant) -> u64 {
        match self {
            Self::Free => 0,
            Self::One(_, stake) if stake.is_over(now) => 0,
            Self::One(_, stake) => u64::from(stake.reads()),
            Self::Many(readers) => readers.with(|readers| readers.live(now).reads),
        }
    }

    #[inline]
    pub(crate) fn get(&self, owner: OwnerRef<'_>) -> Option<Stake> {
        match self {
            Self::Free => None,
            Self::One(holder, stake) => (holder.as_ref() == owner).then(|| stake.unpack()),
            Self::Many(readers) => readers.with(|readers| readers.get(owner)),
        }
    }

    /// Adds a hold of an owner that has none. If there are others, it and they must be readers'.
    pub(crate) fn insert(&mut self, owner: Owner, stake: Stake) {
        match self {
            Self::Free => *self = Self::One(owner, Packed::of(&stake)),
            Self::One(..) => {
                let readers = Shared::default();
                readers.with(|readers| {
                    if let Self::One(first, first_stake) = std::mem::take(self) {
                        readers.insert(first, first_stake.unpack());
                    }
                    readers.insert(owner, stake);
                });
                *self = Self::Many(readers);
            }
            Self::Many(readers) => readers.with(|readers| readers.insert(owner, stake)),
        }
    }

    /// Changes the hold of `owner`, and removes it if nothing of it is left. `None` if there is none, or if `act` returns that.
    pub(crate) fn alter<T>(
        &mut self,
        owner: OwnerRef<'_>,
        act: impl FnOnce(&mut Stake) -> Option<T>,
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
                outcome
            }
            Self::Many(readers) => {
                let outcome = readers.with(|readers| readers.alter(owner, act));
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
                let stake = readers.with(|readers| readers.remove(owner))?;
                self.shrink();
                Some(stake)
            }
        }
    }

    /// One reader needs no map.
    fn shrink(&mut self) {
        let Self::Many(readers) = self else { return };
        let last = readers.with(|readers| (readers.len() <= 1).then(|| readers.pop_next()));
        *self = match last {
            None => return,
            Some(Some((owner, stake))) => Self::One(owner, Packed::of(&stake)),
            Some(None) => Self::Free,
        };
    }

    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        match self {
            Self::Free => None,
            Self::One(_, stake) => Some(stake.deadline()),
            Self::Many(readers) => readers.with(|readers| readers.next_deadline()),
        }
    }

    /// When the first lease ends that is not over at `now`.
    pub(crate) fn next_live_deadline(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::Free | Self::One(..) => self.next_deadline().filter(|first| *first > now),
            Self::Many(readers) => readers.with(|readers| readers.next_live_deadline(now)),
        }
    }

    /// Removes up to `few` of the holds whose lease is over, and passes each to `ended`. But if more are over and at most one would remain,
    /// it keeps that one and returns the others in one piece.
    pub(crate) fn drop_over(
        &mut self,
        now: Instant,
        few: usize,
        mut ended: impl FnMut(&Owner, &Stake),
    ) -> Option<Box<Remains>> {
        if let Self::Many(readers) = self {
            let gone = readers.with(|readers| {
                let live = readers.live(now).len;
                let whole = live <= 1 && readers.len() - live > few;
                whole.then(|| std::mem::take(readers))
            });
            if let Some(mut gone) = gone {
                *self = match gone.pop_last_live(now) {
                    Some((owner, stake)) => Self::One(owner, Packed::of(&stake)),
                    None => Self::Free,
                };
                return Some(Box::new(Remains::of(gone)));
            }
        }
        for _ in 0..few {
            let Some((owner, stake)) = self.pop_over(now) else {
                break;
            };
            ended(&owner, &stake);
        }
        None
    }

    /// Removes all holds. Those of several readers are returned, because dropping them takes time.
    pub(crate) fn clear(&mut self) -> Option<Box<Remains>> {
        match std::mem::take(self) {
            Self::Free | Self::One(..) => None,
            Self::Many(readers) => {
                let gone = readers.with(std::mem::take);
                Some(Box::new(Remains::of(gone)))
            }
        }
    }

    /// Removes the hold whose lease is over for the longest, if there is one.
    fn pop_over(&mut self, now: Instant) -> Option<(Owner, Stake)> {
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
                let gone = readers.with(Readers::pop_next);
                self.shrink();
                gone
            }
        }
    }

    /// The hold of the first owner in byte order. It shows the mode of all.
    pub(crate) fn first(&self) -> Option<Stake> {
        match self {
            Self::Free => None,
            Self::One(_, stake) => Some(stake.unpack()),
            Self::Many(readers) => readers.with(|readers| readers.first()),
        }
    }

    pub(crate) fn iter(&self) -> Holds<'_> {
        Holds(match self {
            Self::Free => Iter::One(None),
            Self::One(owner, stake) => Iter::One(Some((owner, *stake))),
            Self::Many(readers) => Iter::Many {
                readers,
                page: Vec::new().into_iter(),
                last: None,
            },
        })
    }

    /// Up to `len` of the holds whose lease is not over at `now`, by owner in byte order.
    pub(crate) fn live(&self, now: Instant, len: usize) -> Vec<(Owner, Stake)> {
        match self {
            Self::Free | Self::One(..) => {
                let live = self.iter().filter(|(_, stake)| !stake.is_over(now));
                live.take(len).collect()
            }
            Self::Many(readers) => {
                let live = readers.with(|readers| readers.live_holds(now, len));
                let unpack = |(owner, stake): (Owner, Packed)| (owner, stake.unpack());
                live.into_iter().map(unpack).collect()
            }
        }
    }

    /// Up to `len` owners after `last` in byte order, or from the first one on.
    pub(crate) fn owners_behind(&self, last: Option<&Owner>, len: usize) -> Vec<Owner> {
        match self {
            Self::Free => Vec::new(),
            Self::One(owner, _) => {
                let behind = last.is_none_or(|last| last < owner);
                behind.then(|| owner.clone()).into_iter().collect()
            }
            Self::Many(readers) => {
                let page = readers.with(|readers| readers.page(last, len));
                page.into_iter().map(|(owner, _)| owner).collect()
            }
        }
    }

    pub(crate) fn observe(&self) -> Observed {
        match self {
            Self::Free => Observed::Free,
            Self::One(owner, stake) => Observed::one(owner, &stake.unpack()),
            Self::Many(readers) => Observed::many(readers),
        }
    }

    /// Bytes allocated outside the lock itself, as far as they can be known.
    pub(crate) fn heap_size(&self) -> usize {
        match self {
            Self::Free => 0,
            Self::One(owner, _) => owner.heap_size(),
            Self::Many(readers) => readers.with(|readers| readers.size()),
        }
    }
}

/// How many holds are copied at once.
const PAGE: usize = 64;

/// The holds on one lock, by owner in byte order.
#[derive(Clone, Debug)]
pub struct Holds<'a>(Iter<'a>);

#[derive(Clone, Debug)]
enum Iter<'a> {
    One(Option<(&'a Owner, Packed)>),
    /// Copied a page at a time, because they are shared.
    Many {
        readers: &'a Shared,
        page: vec::IntoIter<(Owner, Packed)>,
        /// The last one that was copied.
        last: Option<Owner>,
    },
}

impl Iterator for Holds<'_> {
    type Item = (Owner, Stake);

    fn next(&mut self) -> Option<Self::Item> {
        let (owner, stake) = match &mut self.0 {
            Iter::One(one) => {
                let (owner, stake) = one.take()?;
                (owner.clone(), stake)
            }
            Iter::Many {
                readers,
                page,
                last,
            } => {
                if page.len() == 0 {
                    let more = readers.with(|readers| readers.page(last.as_ref(), PAGE));
                    *last = more.last().map(|(owner, _)| owner.clone());
                    *page = more.into_iter();
                }
                page.next()?
            }
        };
        Some((owner, stake.unpack()))
    }
}
