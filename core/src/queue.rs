//! The waiters of one key, and whom to let in next.
//!
//! The queue is first in, first out. Whoever changes the lock calls [`Queue::settle`], which hands
//! a free place straight to the head: one writer, or every reader up to the next writer. Nobody is
//! woken to try again, and nobody overtakes, so a waiter needs two commands whatever the length of
//! the queue: its acquire and its release.
//!
//! Two rules break the order, and both for the owner's own sake. An upgrade stands ahead of the
//! line, because the line waits for its read hold anyway. And when an owner comes to hold, its own
//! other requests are decided at once (re-entry, or they become upgrades), because whoever stands
//! between them would wait for somebody who waits for him.
//!
//! A waiter leaves by [`Queue::remove`], O(log n) wherever it stands; settling afterwards lets in
//! whom it kept out.

use std::collections::{BTreeMap, BTreeSet};

use crate::hold::Stake;
use crate::lock::{AcquireError, Busy, Grant, Live, Request};
use crate::token::TokenClock;
use crate::types::{Count, Instant, Lease, Micros, Mode, Owner, OwnerRef, Token};

/// A waiter, the same for as long as the process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// A request that waits.
#[derive(Clone, Debug)]
pub struct Waiter {
    /// Which.
    pub id: WaiterId,
    /// Who waits.
    pub owner: Owner,
    /// For what.
    pub mode: Mode,
    /// For how long it will hold from the grant on.
    pub lease: Lease,
    /// See [`Request::holds`].
    pub holds: Option<Count>,
    /// See [`Request::fence`]. It was within the bound when it was asked.
    pub fence: Option<Token>,
    /// The connection that waits.
    pub client: u64,
    /// Since when it waits.
    pub since: Instant,
    /// Until when; `None` for no limit.
    pub limit: Option<Instant>,
}

impl Waiter {
    /// What it asks for.
    pub fn request(&self) -> Request<'_> {
        Request {
            owner: self.owner.as_ref(),
            mode: self.mode,
            lease: self.lease,
            holds: self.holds,
            fence: self.fence,
            client: self.client,
        }
    }
}

/// Upgrades stand ahead of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Upgrade,
    Line,
}

/// Where a waiter stands: lower is further ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) rank: Rank,
    pub(crate) id: WaiterId,
}

impl Place {
    pub(crate) const FIRST: Self = Self {
        rank: Rank::Upgrade,
        id: WaiterId(0),
    };
    pub(crate) const LAST: Self = Self {
        rank: Rank::Line,
        id: WaiterId(u64::MAX),
    };
}

/// A waiter that left the queue with an answer.
#[derive(Debug)]
pub struct Decided {
    /// Who.
    pub waiter: Box<Waiter>,
    /// The answer.
    pub verdict: Verdict,
}

/// What a waiter is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Granted {
        /// What it was granted.
        grant: Grant,
        /// The owner's stake after the grant.
        stake: Stake,
        /// The owner's stake before it, to go back to if nobody can be told.
        before: Option<Stake>,
        /// Nobody else holds.
        alone: bool,
    },
    /// The read hold that it wanted to upgrade has ended.
    UpgradeLost,
    /// It can never be granted.
    Refused(AcquireError),
}

/// What settling a queue brought.
#[derive(Debug, Default)]
pub struct Settled {
    /// Waiters that left, in the order in which they were decided.
    pub decided: Vec<Decided>,
    /// Waiters that stay but have become upgrades, which may have closed a cycle.
    pub upgrading: Vec<WaiterId>,
}

/// The waiters of one key.
#[derive(Debug, Default)]
pub struct Queue {
    waiters: BTreeMap<Place, Box<Waiter>>,
    by_owner: BTreeSet<(Owner, Place)>,
    writers: BTreeSet<Place>,
}

impl Queue {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The waiters, the next one first.
    pub fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.waiters.values().map(|waiter| &**waiter)
    }

    /// Since when the one waits that has waited longest.
    pub fn oldest(&self) -> Option<Instant> {
        let line = Place {
            rank: Rank::Line,
            id: WaiterId(0),
        };
        let firsts = [
            self.waiters.range(..line).next(),
            self.waiters.range(line..).next(),
        ];
        firsts
            .into_iter()
            .flatten()
            .map(|(_, waiter)| waiter.since)
            .min()
    }

    pub(crate) fn get(&self, place: Place) -> Option<&Waiter> {
        self.waiters.get(&place).map(|waiter| &**waiter)
    }

    /// Where `id` stands.
    pub(crate) fn place_of(&self, id: WaiterId) -> Option<Place> {
        [Rank::Line, Rank::Upgrade]
            .map(|rank| Place { rank, id })
            .into_iter()
            .find(|place| self.waiters.contains_key(place))
    }

    /// The places of `owner`, the first one first.
    pub(crate) fn places_of(&self, owner: &Owner) -> impl Iterator<Item = Place> {
        let (from, to) = ((owner.clone(), Place::FIRST), (owner.clone(), Place::LAST));
        self.by_owner.range(from..=to).map(|(_, place)| *place)
    }

    /// Who waits, each owner as often as it does.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.by_owner.iter().map(|(owner, _)| owner)
    }

    /// The last writer ahead of `place`.
    pub(crate) fn writer_ahead_of(&self, place: Place) -> Option<Place> {
        self.writers.range(..place).next_back().copied()
    }

    /// Puts `waiter` at the end of the line, or of the upgrades.
    pub(crate) fn push(&mut self, waiter: Box<Waiter>, rank: Rank) {
        let place = Place {
            rank,
            id: waiter.id,
        };
        self.by_owner.insert((waiter.owner.clone(), place));
        if waiter.mode == Mode::Write {
            self.writers.insert(place);
        }
        self.waiters.insert(place, waiter);
    }

    /// Takes a waiter out, wherever it stands.
    pub(crate) fn remove(&mut self, id: WaiterId) -> Option<Box<Waiter>> {
        self.take(self.place_of(id)?)
    }

    fn take(&mut self, place: Place) -> Option<Box<Waiter>> {
        let waiter = self.waiters.remove(&place)?;
        self.by_owner.remove(&(waiter.owner.clone(), place));
        self.writers.remove(&place);
        Some(waiter)
    }

    /// Lets in whom the lock admits. Afterwards the head, if there is one, conflicts with a hold.
    pub(crate) fn settle(
        &mut self,
        live: &mut Live<'_>,
        tokens: &mut TokenClock,
        wall: Micros,
    ) -> Settled {
        let mut settled = Settled::default();
        self.answer_lost_upgrades(live, &mut settled);
        while let Some((&place, waiter)) = self.waiters.first_key_value() {
            let Ok(verdict) = decide(waiter, live, tokens, wall) else {
                break;
            };
            let Some(waiter) = self.take(place) else {
                break;
            };
            let owner = waiter.owner.clone();
            settled.decided.push(Decided { waiter, verdict });
            if matches!(verdict, Verdict::Granted { .. }) {
                self.decide_own(owner.as_ref(), live, tokens, wall, &mut settled);
            }
        }
        settled
    }

    /// Upgrades whose owner holds no more, wherever they stand.
    fn answer_lost_upgrades(&mut self, live: &Live<'_>, settled: &mut Settled) {
        let upgrades = Place::FIRST..=Place {
            rank: Rank::Upgrade,
            ..Place::LAST
        };
        let lost: Vec<Place> = self
            .waiters
            .range(upgrades)
            .filter(|(_, waiter)| live.hold(waiter.owner.as_ref()).is_none())
            .map(|(place, _)| *place)
            .collect();
        for place in lost {
            if let Some(waiter) = self.take(place) {
                let verdict = Verdict::UpgradeLost;
                settled.decided.push(Decided { waiter, verdict });
            }
        }
    }

    /// `owner` has come to hold: its own requests are decided as if asked now.
    pub(crate) fn decide_own(
        &mut self,
        owner: OwnerRef<'_>,
        live: &mut Live<'_>,
        tokens: &mut TokenClock,
        wall: Micros,
        settled: &mut Settled,
    ) {
        let places: Vec<Place> = self.places_of(&owner.to_owner()).collect();
        for place in places {
            let Some(waiter) = self.waiters.get(&place) else {
                continue;
            };
            match decide(waiter, live, tokens, wall) {
                Ok(verdict) => {
                    if let Some(waiter) = self.take(place) {
                        settled.decided.push(Decided { waiter, verdict });
                    }
                }
                Err(Busy::Upgrade) if place.rank == Rank::Line => {
                    if let Some(waiter) = self.take(place) {
                        settled.upgrading.push(waiter.id);
                        self.push(waiter, Rank::Upgrade);
                    }
                }
                Err(_) => {}
            }
        }
    }
}

/// Grants or refuses `waiter`; an error if it has to wait on.
fn decide(
    waiter: &Waiter,
    live: &mut Live<'_>,
    tokens: &mut TokenClock,
    wall: Micros,
) -> Result<Verdict, Busy> {
    let owner = waiter.owner.as_ref();
    let before = live.hold(owner).copied();
    match live.acquire_within_bound(&waiter.request(), tokens, wall) {
        Ok(grant) => match live.hold(owner) {
            Some(&stake) => Ok(Verdict::Granted {
                grant,
                stake,
                before,
                alone: live.len() == 1,
            }),
            None => Err(Busy::Held),
        },
        Err(AcquireError::Busy(busy)) => Err(busy),
        Err(error) => Ok(Verdict::Refused(error)),
    }
}
