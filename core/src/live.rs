//! What each command does to the holds of a lock.
//!
//! Waiting is not known here. An acquire that cannot be granted at once answers [`Busy`] and
//! changes nothing; whether the request then queues is the caller's to decide.
//!
//! Every change goes through [`Live`], for which a hold whose lease is over is not there. A few of
//! those are dropped before anything else is looked at; of a crowd that has ended together the rest
//! stays for later, among readers only, and no rule below sees it.

use crate::hold::Store;
use crate::lock::Lock;
use crate::observed::Observed;
use crate::owner::{Owner, OwnerRef};
use crate::remains::Remains;
use crate::request::{AcquireError, Busy, Grant, How, Release, ReleaseError, Released, Request};
use crate::stake::{Stake, Touched};
use crate::token::{TokenClock, TokenTooHigh};
use crate::types::{Count, Instant, Lease, Micros, Mode, Token};

/// How many holds whose lease is over are dropped at once.
const FEW: usize = 64;

impl Lock {
    /// The lock as it is at `now`: gives access to the holds whose lease is not over. Of the others
    /// up to 64 are dropped, each told to `ended`. Where there are more and one hold is left at most,
    /// all the others go in one piece, see [`Live::take_remains`].
    pub fn at(&mut self, now: Instant, ended: impl FnMut(&Owner, &Stake)) -> Live<'_> {
        let remains = match self.has_ended_holds(now) {
            true => self.store.drop_over(now, FEW, ended),
            false => None,
        };
        Live {
            lock: self,
            now,
            remains,
        }
    }
}

/// A lock at one moment, with every hold's lease running.
#[derive(Debug)]
pub struct Live<'a> {
    lock: &'a mut Lock,
    now: Instant,
    remains: Option<Box<Remains>>,
}

impl Live<'_> {
    /// How many owners hold.
    pub fn len(&self) -> usize {
        self.lock.live_len(self.now)
    }

    /// Nobody holds.
    pub fn is_empty(&self) -> bool {
        self.lock.store.next_live_deadline(self.now).is_none()
    }

    /// One owner holds and nobody else. Of several this is not said before the next look at the
    /// lock, though all but one have been released.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self.lock.store, Store::One(..))
    }

    /// The hold of `owner`.
    pub fn hold(&self, owner: OwnerRef<'_>) -> Option<Stake> {
        let stake = self.lock.hold(owner)?;
        (!stake.is_over(self.now)).then_some(stake)
    }

    /// The hold of the first owner in byte order.
    pub fn first(&self) -> Option<(Owner, Stake)> {
        self.lock.live_holds(self.now, 1).pop()
    }

    /// Up to `len` owners that hold behind `last` in byte order, or from the first one on.
    pub(crate) fn holders_behind(&self, last: Option<&Owner>, len: usize) -> Vec<Owner> {
        self.lock.store.owners_behind(last, len)
    }

    /// When the first lease is over; `None` if nobody holds.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.lock.store.next_live_deadline(self.now)
    }

    /// Holds whose lease is over and whom nobody has been told of. Right after [`Lock::at`] they
    /// are all that were there besides the one that is left, if one is; after a grant, the old hold
    /// of an owner who was granted anew.
    pub fn take_remains(&mut self) -> Option<Box<Remains>> {
        self.remains.take()
    }

    /// Changes the hold of `owner`, which goes if nothing of it is left.
    fn alter<T>(&mut self, owner: OwnerRef<'_>, act: impl FnOnce(&mut Stake) -> T) -> Option<T> {
        let now = self.now;
        let altered = self
            .lock
            .store
            .alter(owner, |stake| (!stake.is_over(now)).then(|| act(stake)));
        altered.flatten()
    }

    /// The last hold of `owner`, if it is over and still here, gives way to a new one.
    fn forget_ended(&mut self, owner: OwnerRef<'_>) {
        if self.lock.has_ended_holds(self.now)
            && let Some(stake) = self.lock.store.remove(owner)
        {
            let remains = self.remains.get_or_insert_default();
            remains.add(owner.to_owner(), stake);
        }
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
        let (alone, now) = (self.is_alone(), self.now);
        let more = self.alter(request.owner, |stake| {
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
        self.forget_ended(request.owner);
        self.lock.store.insert(request.owner.to_owner(), stake);
        Ok(Grant::New(token))
    }

    /// Takes away from a hold, or all of it.
    ///
    /// # Errors
    /// [`ReleaseError`]; nothing has changed.
    pub fn release(&mut self, release: &Release<'_>) -> Result<Released, ReleaseError> {
        let released = self.alter(release.owner, |stake| {
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
        let renewed = self.alter(owner, |stake| {
            if !stake.has_token(token) {
                return None;
            }
            stake.deadline = stake.deadline.max(until);
            stake.touched = stake.touched.again(None);
            Some(*stake)
        });
        renewed.flatten()
    }

    /// `owner` holds by `token`, and is told so: a grant of which it had not heard is not taken back
    /// from then on.
    pub fn confirm(&mut self, owner: OwnerRef<'_>, token: Token) -> bool {
        let confirmed = self.alter(owner, |stake| {
            let holds = stake.token == token;
            if holds {
                stake.touched = stake.touched.again(None);
            }
            holds
        });
        confirmed == Some(true)
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
        Ok(self.alter(owner, |stake| {
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
        let undone = self.alter(owner, |stake| {
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
