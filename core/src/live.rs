//! What each command does to the holds of a lock.
//!
//! This file knows nothing of waiting. An acquire that cannot be granted at once returns [`Busy`] and changes nothing. The
//! caller decides whether the request waits.
//!
//! Every change goes through [`Live`], which ignores holds whose lease is over. [`Lock::at`] drops a few of them first. If more
//! have ended together, which only readers can, the rest stay for later, and no rule below sees them.

mod release;

use crate::admission::{self, Growth, Holders, Turn};
use crate::hold::Store;
use crate::lock::Lock;
use crate::observed::Observed;
use crate::owner::{Owner, OwnerRef};
use crate::remains::Remains;
use crate::request::{AcquireError, Grant, Pass, PassError, Passed, Request, Revoked, Terms};
use crate::stake::{Stake, Touched};
use crate::token::{TokenClock, TokenTooHigh};
use crate::types::{Count, Instant, Lease, Micros, Token};

/// How many holds whose lease is over are dropped at once.
const FEW: usize = 64;

impl Lock {
    /// The lock as it is at `now`, with access to the holds whose lease is not over. Drops up to 64 of the others and passes
    /// each to `ended`. If more have ended and at most one hold is left, all of them leave in one piece, see
    /// [`Live::take_remains`].
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

    /// Exactly one owner holds. If several held and all but one have ended since [`Lock::at`], this is still false.
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

    /// Up to `len` owners that hold, after `last` in byte order, or from the first one on.
    pub(crate) fn holders_behind(&self, last: Option<&Owner>, len: usize) -> Vec<Owner> {
        self.lock.store.owners_behind(last, len)
    }

    /// When the first lease is over; `None` if nobody holds.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.lock.store.next_live_deadline(self.now)
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
        self.lock.store.alter(owner, act)
    }

    /// Removes the last hold of `owner`, if it is over and still here, to make way for a new one.
    fn forget_ended(&mut self, owner: OwnerRef<'_>) {
        if self.lock.has_ended_holds(self.now)
            && let Some(stake) = self.lock.store.remove(owner)
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

    pub(crate) fn observe(&self) -> Observed {
        self.lock.observe()
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
        self.check_token(request)?;
        let (holders, now) = (self.holders(terms), self.now);
        let more = self.alter(*owner, |stake| {
            let growth = admission::admit_more(terms, stake, holders)?;
            grow(stake, terms, growth, now, tokens, wall)
        });
        if let Some(outcome) = more {
            return outcome;
        }
        let count = admission::admit_new(terms, holders, turn).map_err(AcquireError::Busy)?;
        let token = tokens
            .next(wall, terms.fence)
            .ok_or(AcquireError::OutOfTokens)?;
        self.insert(request, count, token);
        Ok(Grant::New(token))
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
        let count = self.admit_new(request)?;
        Ok(self.insert(request, count, token))
    }

    fn admit_new(&self, request: &Request<'_>) -> Result<Count, AcquireError> {
        if self.hold(request.owner).is_some() {
            return Err(AcquireError::HoldsOne);
        }
        let holders = self.holders(&request.terms);
        admission::admit_new(&request.terms, holders, Turn::First).map_err(AcquireError::Busy)
    }

    /// Why `request` is not granted while nothing is granted.
    pub fn refuse_in_grace(&self, request: &Request<'_>) -> AcquireError {
        let stake = self.hold(request.owner);
        match self.check_token(request) {
            Ok(()) => admission::refuse_in_grace(&request.terms, stake.as_ref()),
            Err(error) => error,
        }
    }

    /// A request with a token finds the hold that it wants to add to. A revoked hold refuses it, whatever the token.
    fn check_token(&self, request: &Request<'_>) -> Result<(), AcquireError> {
        let is_there = |token| {
            let stake = self.hold(request.owner);
            stake.is_some_and(|stake| stake.revoked || stake.token >= token)
        };
        match request.terms.token {
            Some(token) if !is_there(token) => Err(AcquireError::NotHeldByToken),
            _ => Ok(()),
        }
    }

    fn holders(&self, terms: &Terms) -> Holders {
        Holders {
            // A writer holds alone, so the first hold shows the mode of all.
            mode: self.lock.store.first().map(|first| first.mode()),
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
        self.lock.store.insert(owner.to_owner(), stake);
        stake
    }

    /// Sets the lease to max(what is left, `lease`). Returns the hold's token; `None` if the
    /// owner holds nothing here, or not with `token`, or if its hold is revoked.
    pub fn renew(
        &mut self,
        owner: OwnerRef<'_>,
        lease: Lease,
        token: Option<Token>,
    ) -> Option<Token> {
        let until = self.now.after(lease.as_millis());
        let renewed = self.alter(owner, |stake| {
            if !stake.has_token(token) || stake.revoked {
                return None;
            }
            stake.deadline = stake.deadline.max(until);
            stake.touched = stake.touched.again(None);
            Some(stake.token)
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
        self.lock.store.remove(pass.owner);
        self.lock.store.insert(pass.new_owner.to_owner(), stake);
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
    Ok(if growth.upgrade {
        Grant::Upgrade(stake.token)
    } else {
        Grant::Reentry(stake.token)
    })
}
