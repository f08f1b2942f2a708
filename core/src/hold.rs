//! Where the holds of one lock are kept. No rules here: see `lock.rs`.
//!
//! One holder, the common case, lives in the lock itself. Several (they can only be readers) live
//! in a map by owner, with their deadlines in order beside it, so that everything about one of
//! them stays O(log n).

use crate::readers::{self, Readers};
use crate::types::{Instant, Mode, Owner, OwnerRef, Token};

/// One owner's stake in one lock: what the contract calls a hold, less its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stake {
    /// How often it holds write, 0 to 2^31 − 1. One of `write` and `read` is at least 1.
    pub write: u32,
    /// How often it holds read, 0 to 2^31 − 1.
    pub read: u32,
    /// The fencing token.
    pub token: Token,
    /// When its lease is over: it holds before this moment and not from it on.
    pub deadline: Instant,
    /// When it was first granted.
    pub since: Instant,
    /// Which connection was granted last, and how often the hold was touched.
    pub touched: Touched,
}

/// The connection a hold was last granted to, and a serial that moves with every change, so that
/// a late step can see whether the hold was touched since. Packed, because a million locks are
/// kept in memory: 44 bits of connection id (a million new connections a second for half a year),
/// 20 bits of serial (it is compared across one turn of the event loop).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Touched(u64);

impl Touched {
    const SERIAL_BITS: u32 = 20;
    const SERIAL_MASK: u64 = (1 << Self::SERIAL_BITS) - 1;

    /// First granted to connection `client`; 0, unknown, if its id needs more than 44 bits.
    pub fn by(client: u64) -> Self {
        Self(if client.leading_zeros() < Self::SERIAL_BITS {
            0
        } else {
            client << Self::SERIAL_BITS
        })
    }

    /// Connection that was granted last, 0 if unknown.
    pub fn client(self) -> u64 {
        self.0 >> Self::SERIAL_BITS
    }

    /// Touched once more, by `client` if it is a grant.
    #[must_use]
    pub fn again(self, client: Option<u64>) -> Self {
        let serial = self.0.wrapping_add(1) & Self::SERIAL_MASK;
        Self((Self::by(client.unwrap_or(self.client())).0 & !Self::SERIAL_MASK) | serial)
    }
}

impl Stake {
    /// How often it holds `mode`.
    pub fn count(&self, mode: Mode) -> u32 {
        match mode {
            Mode::Read => self.read,
            Mode::Write => self.write,
        }
    }

    pub(crate) fn count_mut(&mut self, mode: Mode) -> &mut u32 {
        match mode {
            Mode::Read => &mut self.read,
            Mode::Write => &mut self.write,
        }
    }

    /// Both counts together, as RELEASE answers them.
    pub fn total(&self) -> u64 {
        u64::from(self.write) + u64::from(self.read)
    }

    /// Its token is `token`, if one is asked for.
    pub(crate) fn has_token(&self, token: Option<Token>) -> bool {
        token.is_none_or(|token| token == self.token)
    }

    /// Leaves nothing of it.
    pub(crate) fn clear(&mut self) {
        (self.write, self.read) = (0, 0);
    }

    /// Its lease is over.
    pub fn is_over(&self, now: Instant) -> bool {
        self.deadline <= now
    }
}

/// The holds on one key, in no order that means anything but by owner.
#[derive(Clone, Debug, Default)]
pub(crate) enum Store {
    #[default]
    Free,
    One(Owner, Stake),
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

    pub(crate) fn get(&self, owner: OwnerRef<'_>) -> Option<&Stake> {
        match self {
            Self::Free => None,
            Self::One(holder, stake) => (holder.as_ref() == owner).then_some(stake),
            Self::Many(readers) => readers.get(owner),
        }
    }

    /// Adds a hold of an owner that has none. Beside others it must be a reader's, and so theirs.
    pub(crate) fn insert(&mut self, owner: Owner, stake: Stake) {
        match self {
            Self::Free => *self = Self::One(owner, stake),
            Self::One(..) => {
                let mut readers = Box::<Readers>::default();
                if let Self::One(first, first_stake) = std::mem::take(self) {
                    readers.insert(first, first_stake);
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
            Self::One(holder, stake) => {
                if holder.as_ref() != owner {
                    return None;
                }
                let outcome = act(stake);
                if stake.total() == 0 {
                    *self = Self::Free;
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
                let stake = (holder.as_ref() == owner).then_some(*stake)?;
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
                Some((owner, stake)) => Self::One(owner, stake),
                None => Self::Free,
            };
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        match self {
            Self::Free => None,
            Self::One(_, stake) => Some(stake.deadline),
            Self::Many(readers) => readers.next_deadline(),
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
                Self::One(owner, stake) => Some((owner, stake)),
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
            Self::One(owner, stake) => Iter::One(Some((owner, stake))),
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
    One(Option<(&'a Owner, &'a Stake)>),
    Many(readers::Iter<'a>),
}

impl<'a> Iterator for Holds<'a> {
    type Item = (&'a Owner, &'a Stake);

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Iter::One(one) => one.take(),
            Iter::Many(many) => many.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_touch_moves_the_serial_and_a_grant_the_connection() {
        let first = Touched::by(7);
        assert_eq!(first.client(), 7);
        let renewed = first.again(None);
        assert_eq!(renewed.client(), 7);
        assert_ne!(renewed, first);
        let granted = renewed.again(Some(8));
        assert_eq!(granted.client(), 8);
        assert_eq!(granted.again(Some(0)).client(), 0);
    }

    #[test]
    fn the_serial_wraps_and_leaves_the_connection_alone() {
        const LARGEST: u64 = (1 << 44) - 1;
        let mut touched = Touched::by(LARGEST);
        for _ in 0..1 << Touched::SERIAL_BITS {
            let before = touched;
            touched = touched.again(None);
            assert_ne!(touched, before);
            assert_eq!(touched.client(), LARGEST);
        }
        assert_eq!(touched, Touched::by(LARGEST));
    }

    #[test]
    fn a_connection_of_more_than_44_bits_is_unknown() {
        assert_eq!(Touched::by(1 << 44).client(), 0);
        assert_eq!(Touched::by(7).again(Some(u64::MAX)).client(), 0);
    }
}
