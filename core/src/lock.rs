//! One lock: who holds it, and what each command does to the holds.
//!
//! Waiting is not known here. An acquire that cannot be granted at once answers [`Busy`] and
//! changes nothing; whether the request then queues is the caller's to decide.
//!
//! Every change goes through [`Live`], which drops the holds whose lease is over before anything
//! else is looked at. So no rule below can forget that an ended hold counts for nothing.

use crate::hold::{Holds, Store};
use crate::observed::Observed;
use crate::owner::{Owner, OwnerRef};
use crate::request::{AcquireError, Busy, Grant, How, Release, ReleaseError, Released, Request};
use crate::stake::{Stake, Touched};
use crate::token::{TokenClock, TokenTooHigh};
use crate::types::{Count, Instant, Lease, Micros, Mode, Token};

/// The holds on one key.
#[derive(Clone, Debug, Default)]
pub struct Lock {
    store: Store,
}

impl Lock {
    /// Held by nobody.
    pub const fn free() -> Self {
        Self { store: Store::Free }
    }

    /// Nobody holds, not even for a lease that is over.
    pub fn is_free(&self) -> bool {
        matches!(self.store, Store::Free)
    }

    /// How many owners hold, those included whose lease is over and who were not dropped yet.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// The same as [`Self::is_free`].
    pub fn is_empty(&self) -> bool {
        self.is_free()
    }

    /// When the first lease is over; `None` if nobody holds.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.store.next_deadline()
    }

    /// When the last lease is over; `None` if nobody holds.
    pub fn last_deadline(&self) -> Option<Instant> {
        self.store.last_deadline()
    }

    /// Every hold, those included whose lease is over, by owner in byte order.
    pub fn holds(&self) -> Holds<'_> {
        self.store.iter()
    }

    /// The hold of `owner`, whose lease may be over.
    pub fn hold(&self, owner: OwnerRef<'_>) -> Option<Stake> {
        self.store.get(owner)
    }

    /// Bytes allocated outside the lock itself.
    pub fn heap_size(&self) -> usize {
        self.store.heap_size()
    }

    /// How many owners hold at `now`.
    pub fn live_len(&self, now: Instant) -> usize {
        self.store.live_len(now)
    }

    /// The mode it is held in at `now`; `None` if nobody holds.
    pub fn mode(&self, now: Instant) -> Option<Mode> {
        // A writer is alone, so the first tells for all.
        let mode = self.store.first()?.mode();
        (self.live_len(now) > 0).then_some(mode)
    }

    /// Who holds, for whoever has to know it without the lock at hand.
    pub fn observe(&self) -> Observed {
        self.store.observe()
    }

    /// The lock as it is at `now`: drops the holds whose lease is over, each told to `ended`, and
    /// gives access to the rest.
    pub fn at(&mut self, now: Instant, mut ended: impl FnMut(&Owner, &Stake)) -> Live<'_> {
        while let Some((owner, stake)) = self.store.pop_over(now) {
            ended(&owner, &stake);
        }
        Live { lock: self, now }
    }

    /// Takes over a hold that was decided elsewhere: by the primary, or before a restart. What it
    /// contradicts goes, because the newer fact is the true one.
    pub fn put(&mut self, owner: OwnerRef<'_>, stake: Stake) {
        let contradicts = self.store.first().is_some_and(|first| {
            let alone = self.len() == 1;
            if alone && self.store.get(owner).is_some() {
                return false;
            }
            stake.write > 0 || (alone && first.write > 0)
        });
        if contradicts {
            self.store = Store::Free;
        }
        if self.store.alter(owner, |old| *old = stake).is_none() {
            self.store.insert(owner.to_owner(), stake);
        }
    }

    /// Drops the hold of `owner`, as decided elsewhere.
    pub fn remove(&mut self, owner: OwnerRef<'_>) -> Option<Stake> {
        self.store.remove(owner)
    }

    /// Drops every hold, as decided elsewhere.
    pub fn clear(&mut self) {
        self.store = Store::Free;
    }
}

/// A lock at one moment, with every hold's lease running.
#[derive(Debug)]
pub struct Live<'a> {
    lock: &'a mut Lock,
    now: Instant,
}

impl Live<'_> {
    /// How many owners hold.
    pub fn len(&self) -> usize {
        self.lock.len()
    }

    /// Nobody holds.
    pub fn is_empty(&self) -> bool {
        self.lock.is_free()
    }

    /// The hold of `owner`.
    pub fn hold(&self, owner: OwnerRef<'_>) -> Option<Stake> {
        self.lock.hold(owner)
    }

    /// Every hold, by owner in byte order.
    pub(crate) fn holds(&self) -> Holds<'_> {
        self.lock.holds()
    }

    /// When the first lease is over; `None` if nobody holds.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.lock.next_deadline()
    }

    pub(crate) fn observe(&self) -> Observed {
        self.lock.observe()
    }

    /// Grants `request` if nobody else holds incompatibly.
    ///
    /// # Errors
    /// [`AcquireError`]; nothing has changed.
    pub fn acquire(
        &mut self,
        request: &Request<'_>,
        tokens: &mut TokenClock,
        wall: Micros,
    ) -> Result<Grant, AcquireError> {
        if let Some(fence) = request.fence {
            tokens
                .check(fence, wall)
                .map_err(AcquireError::TokenTooHigh)?;
        }
        self.acquire_within_bound(request, tokens, wall)
    }

    /// The same for a request whose `fence` was found within the bound when it was asked.
    pub(crate) fn acquire_within_bound(
        &mut self,
        request: &Request<'_>,
        tokens: &mut TokenClock,
        wall: Micros,
    ) -> Result<Grant, AcquireError> {
        if let Some(token) = request.token
            && !self.adds_to_hold(request.owner, token)
        {
            return Err(AcquireError::NotHeldByToken);
        }
        let (alone, now) = (self.lock.len() == 1, self.now);
        let more = self.lock.store.alter(request.owner, |stake| {
            grant_more(stake, request, alone, now, tokens, wall)
        });
        match more {
            Some(outcome) => outcome,
            None => self.acquire_first(request, tokens, wall),
        }
    }

    /// `owner` holds, by `token` or a higher one.
    pub fn adds_to_hold(&self, owner: OwnerRef<'_>, token: Token) -> bool {
        self.hold(owner).is_some_and(|stake| stake.token >= token)
    }

    fn acquire_first(
        &mut self,
        request: &Request<'_>,
        tokens: &mut TokenClock,
        wall: Micros,
    ) -> Result<Grant, AcquireError> {
        // One writer is always alone, so the first hold tells the mode of all.
        let compatible = match self.lock.store.first() {
            None => true,
            Some(first) => request.mode == Mode::Read && first.write == 0,
        };
        if !compatible {
            return Err(AcquireError::Busy(Busy::Held));
        }
        let token = tokens
            .next(wall, request.fence)
            .ok_or(AcquireError::OutOfTokens)?;
        let mut stake = Stake {
            write: 0,
            read: 0,
            token,
            deadline: self.now.after(request.lease.as_millis()),
            since: self.now,
            touched: Touched::by(request.client),
        };
        *stake.count_mut(request.mode) = request.holds.unwrap_or(Count::ONE).get();
        self.lock.store.insert(request.owner.to_owner(), stake);
        Ok(Grant::New(token))
    }

    /// Takes away from a hold, or all of it.
    ///
    /// # Errors
    /// [`ReleaseError`]; nothing has changed.
    pub fn release(&mut self, release: &Release<'_>) -> Result<Released, ReleaseError> {
        let released = self.lock.store.alter(release.owner, |stake| {
            if !stake.has_token(release.token) {
                return Err(ReleaseError::NotHeld);
            }
            take_away(stake, release.how)
        });
        released.unwrap_or(Err(ReleaseError::NotHeld))
    }

    /// The lease becomes max(what is left, `lease`). Answers the stake after it; `None` if the
    /// owner holds nothing here, or not with `token`.
    pub fn renew(
        &mut self,
        owner: OwnerRef<'_>,
        lease: Lease,
        token: Option<Token>,
    ) -> Option<Stake> {
        let until = self.now.after(lease.as_millis());
        let renewed = self.lock.store.alter(owner, |stake| {
            if !stake.has_token(token) {
                return None;
            }
            stake.deadline = stake.deadline.max(until);
            stake.touched = stake.touched.again(None);
            Some(*stake)
        });
        renewed.flatten()
    }

    /// Raises the hold's token to `token` if it is lower, and the token clock with it. Answers
    /// the stake after it; `None` if the owner holds nothing here.
    ///
    /// # Errors
    /// [`TokenTooHigh`] if `token` is above the clock's bound; nothing has changed.
    pub fn fence(
        &mut self,
        owner: OwnerRef<'_>,
        token: Token,
        tokens: &mut TokenClock,
        wall: Micros,
    ) -> Result<Option<Stake>, TokenTooHigh> {
        tokens.check(token, wall)?;
        Ok(self.lock.store.alter(owner, |stake| {
            tokens.raise(token);
            stake.token = stake.token.max(token);
            stake.touched = stake.touched.again(None);
            *stake
        }))
    }

    /// Takes a grant back that nobody could be told of: `owner` has again what it had `before`, its
    /// lease included; nothing if that is over by now. Does nothing, and says so, if the hold has
    /// been touched since it was `granted`.
    pub fn undo(&mut self, owner: OwnerRef<'_>, granted: Touched, before: Option<Stake>) -> bool {
        let now = self.now;
        let undone = self.lock.store.alter(owner, |stake| {
            if stake.touched != granted {
                return false;
            }
            match before.filter(|before| !before.is_over(now)) {
                None => stake.clear(),
                Some(before) => *stake = before,
            }
            true
        });
        undone.unwrap_or(false)
    }
}

/// Grants `request` to an owner that holds already; `alone` if nobody else does.
fn grant_more(
    stake: &mut Stake,
    request: &Request<'_>,
    alone: bool,
    now: Instant,
    tokens: &mut TokenClock,
    wall: Micros,
) -> Result<Grant, AcquireError> {
    let upgrade = request.mode == Mode::Write && stake.write == 0;
    if upgrade && !alone {
        return Err(AcquireError::Busy(Busy::Upgrade));
    }
    let count = match request.holds {
        Some(count) => count,
        None => Count::new(stake.count(request.mode) + 1).ok_or(AcquireError::CountTooHigh)?,
    };
    if upgrade {
        stake.token = tokens
            .next(wall, request.fence)
            .ok_or(AcquireError::OutOfTokens)?;
    }
    *stake.count_mut(request.mode) = count.get();
    stake.deadline = stake.deadline.max(now.after(request.lease.as_millis()));
    stake.touched = stake.touched.again(Some(request.client));
    Ok(if upgrade {
        Grant::Upgrade(stake.token)
    } else {
        Grant::Reentry(stake.token)
    })
}

fn take_away(stake: &mut Stake, how: How) -> Result<Released, ReleaseError> {
    let (mode, target) = match how {
        How::All => {
            stake.clear();
            return Ok(Released {
                left: 0,
                changed: true,
                since: stake.since,
            });
        }
        How::One(mode) => (mode, None),
        How::LeaveAt(count, mode) => (mode, Some(count)),
    };
    let mode = match mode {
        Some(mode) => mode,
        None if stake.write > 0 && stake.read > 0 => return Err(ReleaseError::ModeNotNamed),
        None if stake.write > 0 => Mode::Write,
        None => Mode::Read,
    };
    let count = stake.count_mut(mode);
    if *count == 0 {
        return Err(ReleaseError::NotHeld);
    }
    let target = target.unwrap_or(*count - 1).min(*count);
    let changed = target != *count;
    *count = target;
    stake.touched = stake.touched.again(None);
    Ok(Released {
        left: stake.total(),
        changed,
        since: stake.since,
    })
}
