//! The readers of one lock, shared between the lock and its observers.
//!
//! A search that spans keys cannot open each key. It keeps an [`Observed`] instead. A single holder is copied into it. Several
//! readers are shared, because a copy would cost too much: the observer sees every change at once. When the lock is gone or
//! has one holder left, the observer sees nobody and has to observe anew.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::owner::{Owner, OwnerRef};
use crate::readers::Readers;
use crate::stake::{Packed, Stake};
use crate::types::{Instant, Mode};

/// The readers as the lock keeps them. A clone is a copy of its own.
#[derive(Debug, Default)]
pub(crate) struct Shared(Arc<Mutex<Readers>>);

impl Clone for Shared {
    fn clone(&self) -> Self {
        Self(Arc::new(Mutex::new(self.with(|readers| readers.clone()))))
    }
}

impl Shared {
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Readers) -> T) -> T {
        with(&self.0, act)
    }

    pub(crate) fn observe(&self) -> ObservedReaders {
        ObservedReaders(Arc::downgrade(&self.0))
    }
}

/// No code panics while the readers are half changed, so a poisoned mutex is still sound.
fn with<T>(readers: &Mutex<Readers>, act: impl FnOnce(&mut Readers) -> T) -> T {
    act(&mut readers.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A single holder as it was when it was observed, or several readers as they are now.
#[derive(Clone, Debug, Default)]
pub enum Observed {
    /// Nobody held.
    #[default]
    Free,
    /// One owner held.
    One {
        /// Who.
        owner: Owner,
        /// Write if it held that, too.
        mode: Mode,
        /// Its read count.
        reads: u32,
        /// When its lease was to end.
        deadline: Instant,
    },
    /// Several held, all of them readers.
    Many(ObservedReaders),
}

impl Observed {
    pub(crate) fn one(owner: &Owner, stake: &Stake) -> Self {
        Self::One {
            owner: owner.clone(),
            mode: stake.mode(),
            reads: stake.read,
            deadline: stake.deadline,
        }
    }

    pub(crate) fn many(readers: &Shared) -> Self {
        Self::Many(readers.observe())
    }

    /// `owner` holds at `now`.
    pub fn holds(&self, owner: OwnerRef<'_>, now: Instant) -> bool {
        match self {
            Self::Free => false,
            Self::One {
                owner: holder,
                deadline,
                ..
            } => *deadline > now && holder.as_ref() == owner,
            Self::Many(readers) => readers.holds(owner, now),
        }
    }

    /// Another owner of `owner`'s task (the same up to the last `##`) than `except` holds at `now`.
    pub fn holds_for_task(
        &self,
        owner: OwnerRef<'_>,
        except: Option<OwnerRef<'_>>,
        now: Instant,
    ) -> bool {
        match self {
            Self::Free => false,
            Self::One {
                owner: holder,
                deadline,
                ..
            } => {
                let holder = holder.as_ref();
                let counts = *deadline > now && except != Some(holder);
                counts && holder.task_owner() == owner.task_owner()
            }
            Self::Many(readers) => readers.holds_for_task(owner, except, now),
        }
    }

    /// The only owner that holds at `now`, if it reads, and its read count.
    pub(crate) fn only_reader(&self, now: Instant) -> Option<(Owner, u32)> {
        match self {
            Self::One {
                owner,
                mode: Mode::Read,
                reads,
                deadline,
            } if *deadline > now => Some((owner.clone(), *reads)),
            Self::Free | Self::One { .. } => None,
            Self::Many(readers) => readers.only_one(now),
        }
    }

    /// When the first lease is over; `None` if nobody holds.
    pub fn next_deadline(&self) -> Option<Instant> {
        match self {
            Self::Free => None,
            Self::One { deadline, .. } => Some(*deadline),
            Self::Many(readers) => readers.next_deadline(),
        }
    }

    /// The mode it is held in at `now`; `None` if nobody holds.
    pub fn mode(&self, now: Instant) -> Option<Mode> {
        let mode = match self {
            Self::One { mode, .. } => *mode,
            Self::Free | Self::Many(_) => Mode::Read,
        };
        (self.live_len(now) > 0).then_some(mode)
    }

    /// How many hold at `now`.
    pub fn live_len(&self, now: Instant) -> usize {
        match self {
            Self::Free => 0,
            Self::One { deadline, .. } => usize::from(*deadline > now),
            Self::Many(readers) => readers.live_len(now),
        }
    }
}

/// The readers of a lock, for as long as there are several.
#[derive(Clone, Debug)]
pub struct ObservedReaders(Weak<Mutex<Readers>>);

impl ObservedReaders {
    /// `owner` holds at `now`. O(log n).
    pub fn holds(&self, owner: OwnerRef<'_>, now: Instant) -> bool {
        let stake = self.with(|readers| readers.get(owner)).flatten();
        stake.is_some_and(|stake| !stake.is_over(now))
    }

    /// An owner of `owner`'s task other than `except` holds at `now`. O(log n), and one step for each
    /// of the task that is passed by.
    pub fn holds_for_task(
        &self,
        owner: OwnerRef<'_>,
        except: Option<OwnerRef<'_>>,
        now: Instant,
    ) -> bool {
        let is_live = |stake: Packed| !stake.is_over(now);
        let held = self.with(|readers| readers.reads_for_task(owner, except, is_live));
        held.unwrap_or(false)
    }

    /// The only one whose lease is not over at `now`, and its read count.
    fn only_one(&self, now: Instant) -> Option<(Owner, u32)> {
        let last = self.with(|readers| readers.last_if_alone(now)).flatten();
        last.map(|(owner, stake)| (owner, stake.reads()))
    }

    /// Up to `len` of them by owner in byte order, after `last` if there is one, those included whose lease is over.
    pub(crate) fn page(&self, last: Option<&Owner>, len: usize) -> Vec<(Owner, Packed)> {
        let page = self.with(|readers| readers.page(last, len));
        page.unwrap_or_default()
    }

    /// How many hold at `now`.
    pub fn live_len(&self, now: Instant) -> usize {
        let live = self.with(|readers| readers.live(now).len);
        live.unwrap_or(0)
    }

    /// When the first lease is over; `None` if nobody holds.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.with(|readers| readers.next_deadline()).flatten()
    }

    /// Calls `act` with each that holds at `now`, by owner in byte order, until it answers false.
    /// `act` must not ask these readers anything.
    pub fn each(&self, now: Instant, mut act: impl FnMut(&Owner) -> bool) {
        self.with(|readers| {
            for (owner, stake) in readers.iter() {
                if !stake.is_over(now) && !act(owner) {
                    break;
                }
            }
        });
    }

    /// `None` if the lock is gone, or has one holder at most by now.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Readers) -> T) -> Option<T> {
        Some(with(&*self.0.upgrade()?, act))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_reader_reads_until_its_lease_is_over() {
        let name = OwnerRef::new(b"a").expect("1 to 255 bytes");
        let held = |mode| Observed::One {
            owner: name.to_owner(),
            mode,
            reads: 3,
            deadline: Instant::from_millis(100),
        };
        let reads = |mode, ms| {
            let found = held(mode).only_reader(Instant::from_millis(ms));
            found.map(|(owner, reads)| (owner.as_ref() == name, reads))
        };
        assert_eq!(reads(Mode::Read, 99), Some((true, 3)));
        assert_eq!(reads(Mode::Read, 100), None);
        assert_eq!(reads(Mode::Read, 101), None);
        assert_eq!(reads(Mode::Write, 99), None);
    }
}
