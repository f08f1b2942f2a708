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
use std::ops::Range;

use crate::lock::Live;
use crate::observed::Observed;
use crate::owner::{Owner, OwnerRef};
use crate::place::{Place, Rank, Standing};
use crate::request::{AcquireError, Busy, Grant, Request};
use crate::stake::Stake;
use crate::token::TokenClock;
use crate::types::{Count, Instant, Lease, Micros, Mode, Token};

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
    /// See [`Request::token`].
    pub token: Option<Token>,
    /// The connection that waits, 0 for none.
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
            token: self.token,
            client: self.client,
        }
    }
}

/// What a request that is made again brings: all else of it stays, its place above all.
#[derive(Clone, Copy, Debug)]
pub struct Changed {
    /// See [`Waiter::lease`].
    pub lease: Lease,
    /// See [`Waiter::holds`].
    pub holds: Option<Count>,
    /// See [`Waiter::fence`].
    pub fence: Option<Token>,
    /// See [`Waiter::token`].
    pub token: Option<Token>,
    /// See [`Waiter::limit`].
    pub limit: Option<Instant>,
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
    /// The hold that it wanted to add to has ended, or has another token.
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
    standings: BTreeMap<Owner, Standing>,
    /// Where owners stand that have asked for write,
    writers: BTreeSet<Place>,
    /// that wait in other queues, too,
    roamers: BTreeSet<Place>,
    /// and that stand ahead of the line.
    upgraders: BTreeSet<Place>,
    held: Observed,
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
        let line = Place::end_of(Rank::Upgrade);
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

    /// Who holds, as far as the queues know: see [`crate::Queues::observe`].
    pub fn held(&self) -> &Observed {
        &self.held
    }

    pub(crate) fn set_held(&mut self, held: Observed) {
        self.held = held;
    }

    pub(crate) fn get(&self, place: Place) -> Option<&Waiter> {
        self.waiters.get(&place).map(|waiter| &**waiter)
    }

    pub(crate) fn get_mut(&mut self, place: Place) -> Option<&mut Waiter> {
        self.waiters.get_mut(&place).map(|waiter| &mut **waiter)
    }

    /// Where `id` stands.
    pub(crate) fn place_of(&self, id: WaiterId) -> Option<Place> {
        [Rank::Line, Rank::Upgrade]
            .map(|rank| Place { rank, id })
            .into_iter()
            .find(|place| self.waiters.contains_key(place))
    }

    /// What `owner` waits for here.
    pub(crate) fn standing(&self, owner: &Owner) -> Option<&Standing> {
        self.standings.get(owner)
    }

    /// Who waits, by owner in byte order.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.standings.keys()
    }

    /// Who stands ahead of the line.
    pub(crate) fn upgraders(&self) -> impl Iterator<Item = &Owner> {
        let places = self.upgraders.iter();
        places.filter_map(|place| self.get(*place).map(|waiter| &waiter.owner))
    }

    /// How many owners stand ahead of the line.
    pub(crate) fn upgraders_len(&self) -> usize {
        self.upgraders.len()
    }

    /// Who stands at `places` and waits in other queues, too.
    pub(crate) fn roamers(&self, places: Range<Place>) -> impl Iterator<Item = &Owner> {
        let places = self.roamers.range(places);
        places.filter_map(|place| self.get(*place).map(|waiter| &waiter.owner))
    }

    /// Where the last owner ahead of `place` stands that has asked for write.
    pub(crate) fn writer_ahead_of(&self, place: Place) -> Option<Place> {
        self.writers.range(..place).next_back().copied()
    }

    /// Puts `waiter` at the end of the line, or of the upgrades.
    pub(crate) fn push(&mut self, waiter: Box<Waiter>, rank: Rank) {
        let place = Place {
            rank,
            id: waiter.id,
        };
        let writes = usize::from(waiter.mode == Mode::Write);
        self.restand(&waiter.owner, |standing| {
            standing.places.insert(place);
            standing.writes += writes;
        });
        self.waiters.insert(place, waiter);
    }

    /// Takes a waiter out, wherever it stands.
    pub(crate) fn remove(&mut self, id: WaiterId) -> Option<Box<Waiter>> {
        self.take(self.place_of(id)?)
    }

    fn take(&mut self, place: Place) -> Option<Box<Waiter>> {
        let waiter = self.waiters.remove(&place)?;
        let writes = usize::from(waiter.mode == Mode::Write);
        self.restand(&waiter.owner, |standing| {
            standing.places.remove(&place);
            standing.writes -= writes;
        });
        Some(waiter)
    }

    /// The waiter at `place`, in the line so far, stands ahead of it from now on.
    fn move_ahead(&mut self, place: Place) -> Option<WaiterId> {
        let waiter = self.waiters.remove(&place)?;
        let id = waiter.id;
        let ahead = Place {
            rank: Rank::Upgrade,
            id,
        };
        self.restand(&waiter.owner, |standing| {
            standing.places.remove(&place);
            standing.places.insert(ahead);
        });
        self.waiters.insert(ahead, waiter);
        Some(id)
    }

    /// Whether `owner` waits in other queues, too.
    pub(crate) fn set_roams(&mut self, owner: &Owner, roams: bool) {
        if self.standing(owner).is_some_and(|s| s.roams != roams) {
            self.restand(owner, |standing| standing.roams = roams);
        }
    }

    /// Changes what `owner` waits for here, and the indexes with it.
    fn restand(&mut self, owner: &Owner, change: impl FnOnce(&mut Standing)) {
        let standing = self.standings.entry(owner.clone()).or_default();
        if let Some(first) = standing.first() {
            self.writers.remove(&first);
            self.roamers.remove(&first);
            self.upgraders.remove(&first);
        }
        change(standing);
        let Some(first) = standing.first() else {
            self.standings.remove(owner);
            return;
        };
        if standing.writes > 0 {
            self.writers.insert(first);
        }
        if standing.roams {
            self.roamers.insert(first);
        }
        if first.rank == Rank::Upgrade {
            self.upgraders.insert(first);
        }
    }

    /// Lets in whom the lock admits. Afterwards the head, if there is one, conflicts with a hold.
    /// `strangers`: see [`crate::Queues::settle`].
    pub(crate) fn settle(
        &mut self,
        live: &mut Live<'_>,
        tokens: &mut TokenClock,
        wall: Micros,
        strangers: bool,
    ) -> Settled {
        let mut settled = Settled::default();
        self.answer_lost_upgrades(|owner| live.hold(owner).is_some(), &mut settled);
        if strangers {
            let places = self.places_of_holders(live);
            self.decide_own(&places, live, tokens, wall, &mut settled);
        }
        while let Some((&place, waiter)) = self.waiters.first_key_value() {
            let Ok(verdict) = decide(waiter, live, tokens, wall) else {
                break;
            };
            let Some(waiter) = self.take(place) else {
                break;
            };
            let own: Vec<Place> = match self.standings.get(&waiter.owner) {
                Some(standing) if matches!(verdict, Verdict::Granted { .. }) => {
                    standing.places.iter().copied().collect()
                }
                _ => Vec::new(),
            };
            settled.decided.push(Decided { waiter, verdict });
            self.decide_own(&own, live, tokens, wall, &mut settled);
        }
        settled
    }

    /// Where owners wait that hold, the first one first.
    fn places_of_holders(&self, live: &Live<'_>) -> Vec<Place> {
        let holding: Vec<&Standing> = if live.len() < self.standings.len() {
            let holders = live.holds().map(|(owner, _)| owner);
            holders
                .filter_map(|owner| self.standings.get(&owner))
                .collect()
        } else {
            let standings = self.standings.iter();
            standings
                .filter(|(owner, _)| live.hold(owner.as_ref()).is_some())
                .map(|(_, standing)| standing)
                .collect()
        };
        let places = holding.into_iter().flat_map(|standing| &standing.places);
        let mut places: Vec<Place> = places.copied().collect();
        places.sort_unstable();
        places
    }

    /// Upgrades whose owner holds no more, wherever they stand.
    pub(crate) fn answer_lost_upgrades(
        &mut self,
        holds: impl Fn(OwnerRef<'_>) -> bool,
        settled: &mut Settled,
    ) {
        let lost = |place: &&Place| {
            self.get(**place)
                .is_some_and(|waiter| !holds(waiter.owner.as_ref()))
        };
        let mut places: Vec<Place> = Vec::new();
        for first in self.upgraders.iter().filter(lost) {
            let standing = self.get(*first).and_then(|w| self.standings.get(&w.owner));
            let all = standing.into_iter().flat_map(|standing| &standing.places);
            places.extend(all.filter(|place| place.rank == Rank::Upgrade));
        }
        places.sort_unstable();
        for place in places {
            if let Some(waiter) = self.take(place) {
                let verdict = Verdict::UpgradeLost;
                settled.decided.push(Decided { waiter, verdict });
            }
        }
    }

    /// Decides the requests at `places`, whose owners hold, as if they were asked now.
    fn decide_own(
        &mut self,
        places: &[Place],
        live: &mut Live<'_>,
        tokens: &mut TokenClock,
        wall: Micros,
        settled: &mut Settled,
    ) {
        for &place in places {
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
                    settled.upgrading.extend(self.move_ahead(place));
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
    let before = live.hold(owner);
    match live.acquire_within_bound(&waiter.request(), tokens, wall) {
        Ok(grant) => match live.hold(owner) {
            Some(stake) => Ok(Verdict::Granted {
                grant,
                stake,
                before,
                alone: live.is_alone(),
            }),
            None => Err(Busy::Held),
        },
        Err(AcquireError::Busy(busy)) => Err(busy),
        Err(AcquireError::NotHeldByToken) => Ok(Verdict::UpgradeLost),
        Err(error) => Ok(Verdict::Refused(error)),
    }
}
