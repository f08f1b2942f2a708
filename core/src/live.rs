//! What each command does to the holds of a lock.
//!
//! This file knows nothing of waiting. An acquire that cannot be granted at once returns [`Busy`] and changes nothing. The
//! caller decides whether the request waits.
//!
//! Every change goes through [`Live`], which ignores holds whose lease is over. [`Lock::at`] drops a few of them first. If more
//! have ended together, which only readers can, the rest stay for later, and no rule below sees them.

use crate::admission::{self, Growth, Holders, Turn};
use crate::lock::Lock;
use crate::owner::{Owner, OwnerRef};
use crate::readers::Remains;
use crate::request::{
    AcquireError, Busy, Grant, How, Pass, PassError, Passed, Release, ReleaseError, Released,
    Request, Revoked, Terms,
};
use crate::stake::{Stake, Touched};
use crate::token::{TokenClock, TokenTooHigh};
use crate::types::{Count, Instant, Lease, Micros, Mode, Token};

/// How many holds whose lease is over are dropped at once.
const FEW: usize = 64;

impl Lock {
    /// The lock as it is at `now`, with access to the holds whose lease is not over. Drops up to 64 of the others and passes
    /// each to `ended`. If more have ended and at most one hold is left, all of them leave in one piece, see
    /// [`Live::take_remains`].
    pub fn at(&mut self, now: Instant, ended: impl FnMut(&Owner, &Stake)) -> Live<'_> {
        let remains = match self.has_ended_holds(now) {
            true => self.drop_over(now, FEW, ended),
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
        self.lock.next_live_deadline(self.now).is_none()
    }

    /// Exactly one owner holds. If several held and all but one have ended since [`Lock::at`], this is still false.
    pub(crate) fn is_alone(&self) -> bool {
        self.lock.len() == 1
    }

    /// The hold of `owner`.
    pub fn hold(&self, owner: OwnerRef<'_>) -> Option<Stake> {
        self.lock.live_hold(owner, self.now)
    }

    /// The hold of the first owner in byte order.
    pub fn first(&self) -> Option<(Owner, Stake)> {
        self.lock.live_holds(self.now, 1).pop()
    }

    /// When the first lease is over; `None` if nobody holds.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.lock.next_live_deadline(self.now)
    }

    /// Holds whose lease is over and that were passed to no callback. Right after [`Lock::at`] these are all holds that left in one piece;
    /// after a grant, the old hold of an owner that was granted anew.
    pub fn take_remains(&mut self) -> Option<Box<Remains>> {
        self.remains.take()
    }

    /// Changes the hold of `owner`, and removes it if nothing of it is left.
    fn alter<T>(&mut self, owner: OwnerRef<'_>, act: impl FnOnce(&mut Stake) -> T) -> Option<T> {
        let now = self.now;
        let act = |stake: &mut Stake| (!stake.is_over(now)).then(|| act(stake));
        self.lock.alter(owner, act)
    }

    /// Removes the last hold of `owner`, if it is over and still here, to make way for a new one.
    fn forget_ended(&mut self, owner: OwnerRef<'_>) {
        if self.lock.has_ended_holds(self.now)
            && let Some(stake) = self.lock.remove(owner)
        {
            let remains = self.remains.get_or_insert_default();
            remains.add(owner.to_owner(), stake);
        }
    }

    /// The lock, with holds that are over and that were not dropped yet.
    pub fn lock(&self) -> &Lock {
        self.lock
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Grants `request` if the one rule admits it (`admission.rs`).
    ///
    /// # Errors
    /// [`AcquireError`]; nothing has changed.
    pub fn acquire(
        &mut self,
        request: &Request<'_>,
        turn: Turn,
        tokens: &mut TokenClock,
        wall: Micros,
    ) -> Result<Grant, AcquireError> {
        let Request { owner, terms } = request;
        let (stake, now) = (self.hold(*owner), self.now);
        let growth = admission::admit(terms, stake.as_ref(), self.holders(terms), turn)?;
        if stake.is_none() {
            let token = tokens.next(wall, terms.fence);
            let token = token.ok_or(AcquireError::OutOfTokens)?;
            return Ok(Grant::New(self.insert(request, growth.count, token)));
        }
        let grown = self.alter(*owner, |stake| {
            grow(stake, terms, growth, now, tokens, wall)
        });
        grown.unwrap_or(Err(AcquireError::Busy(Busy::Held)))
    }

    /// The owner holds nothing here, and the one rule admits `request`, whose turn it is.
    pub fn admits(&self, request: &Request<'_>) -> bool {
        self.admit_new(request).is_ok()
    }

    /// Grants a new hold by `token`, which the caller has taken from the token clock for several locks at once.
    ///
    /// # Errors
    /// [`AcquireError`]; nothing has changed.
    pub fn take(&mut self, request: &Request<'_>, token: Token) -> Result<Stake, AcquireError> {
        let count = self.admit_new(request)?.count;
        Ok(self.insert(request, count, token))
    }

    fn admit_new(&self, request: &Request<'_>) -> Result<Growth, AcquireError> {
        if self.hold(request.owner).is_some() {
            return Err(AcquireError::HoldsOne);
        }
        let holders = self.holders(&request.terms);
        admission::admit(&request.terms, None, holders, Turn::First)
    }

    /// Why `request` is not granted while nothing is granted.
    pub fn refuse_in_grace(&self, request: &Request<'_>) -> AcquireError {
        admission::refuse_in_grace(&request.terms, self.hold(request.owner).as_ref())
    }

    fn holders(&self, terms: &Terms) -> Holders {
        Holders {
            mode: self.lock.first().map(|first| first.mode()),
            no_other: self.is_alone(),
            room: self.lock.room(terms, self.now),
        }
    }

    fn insert(&mut self, request: &Request<'_>, count: Count, token: Token) -> Stake {
        let Request { owner, terms } = request;
        let mut stake = Stake {
            write: 0,
            read: 0,
            token,
            deadline: self.now.after(terms.lease.as_millis()),
            since: self.now,
            touched: Touched::by(terms.client),
            revoked: false,
        };
        *stake.count_mut(terms.mode()) = count.get();
        self.forget_ended(*owner);
        self.lock.insert(owner.to_owner(), stake);
        stake
    }

    /// Lowers a hold's counts, or ends the hold.
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

    /// Sets the lease to max(what is left, `lease`). Returns the hold after it; `None` if the
    /// owner holds nothing here, or not with `token`, or if its hold is revoked.
    pub fn renew(
        &mut self,
        owner: OwnerRef<'_>,
        lease: Lease,
        token: Option<Token>,
    ) -> Option<Stake> {
        let until = self.now.after(lease.as_millis());
        let renewed = self.alter(owner, |stake| {
            if !stake.has_token(token) || stake.revoked {
                return None;
            }
            stake.deadline = stake.deadline.max(until);
            stake.touched = stake.touched.again(None);
            Some(*stake)
        });
        renewed.flatten()
    }

    /// Makes the hold end with its current lease: from now on nothing extends it. Nothing else changes, so a grant that
    /// was never delivered can still be undone. `None` if the owner holds nothing here, or not with `token`.
    pub fn revoke(&mut self, owner: OwnerRef<'_>, token: Option<Token>) -> Option<Revoked> {
        let now = self.now;
        let revoked = self.alter(owner, |stake| {
            stake.has_token(token).then(|| Revoked {
                left: stake.deadline.millis_since(now),
                changed: !std::mem::replace(&mut stake.revoked, true),
            })
        });
        revoked.flatten()
    }

    /// Whether `owner` holds by `token`. If so, the reply confirms the hold: a grant that was not delivered is not undone any
    /// more.
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

    /// Raises the hold's token to `token` if it is lower, and the token clock with it. Returns
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

    /// The hold that `owner` may pass on: its own, if it has one, by `token`, and not revoked.
    pub fn passable(&self, owner: OwnerRef<'_>, token: Option<Token>) -> Option<Stake> {
        let hold = self.hold(owner);
        hold.filter(|stake| stake.has_token(token) && !stake.revoked)
    }

    /// Moves a whole hold to another owner: modes and counts stay, token and lease are new.
    ///
    /// # Errors
    /// [`PassError`]; nothing has changed.
    pub fn pass(
        &mut self,
        pass: &Pass<'_>,
        tokens: &mut TokenClock,
        wall: Micros,
    ) -> Result<Passed, PassError> {
        let old = self.passable(pass.owner, pass.token);
        let old = old.ok_or(PassError::NotHeld)?;
        if self.hold(pass.new_owner).is_some() {
            return Err(PassError::AlreadyHeld);
        }
        let token = tokens.next(wall, None).ok_or(PassError::OutOfTokens)?;
        let stake = Stake {
            token,
            deadline: self.now.after(pass.lease.as_millis()),
            since: self.now,
            touched: old.touched.again(Some(pass.client)),
            ..old
        };
        self.forget_ended(pass.new_owner);
        self.lock.remove(pass.owner);
        self.lock.insert(pass.new_owner.to_owner(), stake);
        let since = old.since;
        Ok(Passed { token, since })
    }

    /// Undoes a grant that could not be delivered: `owner` has again what it had `before`, its lease included, or nothing if
    /// that lease is over by now. A count that the grant had lowered stays lower, because others may have taken the permits since. A
    /// hold that was revoked since stays revoked. Returns false and does nothing if the hold has changed since it was `granted`.
    pub fn undo(&mut self, owner: OwnerRef<'_>, granted: Touched, before: Option<Stake>) -> bool {
        let now = self.now;
        let undone = self.alter(owner, |stake| {
            if stake.touched != granted {
                return false;
            }
            match before.filter(|before| !before.is_over(now)) {
                None => stake.clear(),
                Some(before) => {
                    *stake = Stake {
                        write: before.write.min(stake.write),
                        read: before.read.min(stake.read),
                        revoked: stake.revoked,
                        ..before
                    };
                }
            }
            true
        });
        undone.unwrap_or(false)
    }
}

/// Grants more to an owner that holds already.
fn grow(
    stake: &mut Stake,
    terms: &Terms,
    growth: Growth,
    now: Instant,
    tokens: &mut TokenClock,
    wall: Micros,
) -> Result<Grant, AcquireError> {
    if growth.upgrade {
        stake.token = tokens
            .next(wall, terms.fence)
            .ok_or(AcquireError::OutOfTokens)?;
    }
    *stake.count_mut(terms.mode()) = growth.count.get();
    stake.deadline = stake.deadline.max(now.after(terms.lease.as_millis()));
    stake.touched = stake.touched.again(Some(terms.client));
    Ok(match growth.upgrade {
        true => Grant::Upgrade(*stake),
        false => Grant::Reentry(*stake),
    })
}

/// Lowers the counts of a hold.
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
