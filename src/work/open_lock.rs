//! A key that a command works on: opened, worked on, closed, and only then are others notified.
//!
//! Between opening and closing nothing here calls code that could call back: no other module, no other command. A subscriber of key-space
//! events may be another module, which the server calls at once, and whose callback may change this very key. So events are collected while
//! the key is open and sent once it is closed.

use std::ffi::CStr;

use mortise_core::codec::Effect;
use mortise_core::{Instant, KeyRef, Live, Lock, Owner, OwnerRef, Stake};

use crate::error::Error;
use crate::ffi::{Access, Arg, Context, Key, Value};
use crate::keys::{effect, leases};
use crate::time::{self, clock};
use crate::waiting;
use crate::work::queue;
use crate::work::slice::Stretch;

/// A key that a command works on, opened for writing.
#[derive(Debug)]
pub(crate) struct OpenLock<'c> {
    pub(crate) ctx: &'c Context<'c>,
    pub(crate) name: Arg<'c>,
    pub(crate) now: Instant,
    pub(super) key: Key<'c>,
    /// A lock for a key that had none. `finish` puts it there: the server notifies others of a new key at once.
    made: Option<Box<Value>>,
    /// The step has changed a hold or a queue, so that waiters may be granted.
    changed: bool,
    /// The next settle grants further waiters.
    pub(super) more: bool,
    notices: Notices<'c>,
}

impl<'c> OpenLock<'c> {
    /// Opens the key and settles it if there are waiters; runs `step`; grants the waiters that the
    /// step made room for, deletes the key if nobody holds the lock any more, and closes it; then
    /// notifies subscribers.
    ///
    /// # Errors
    /// [`Error::WRONG_TYPE`] if the key holds something else.
    pub(crate) fn with<T>(
        ctx: &'c Context<'c>,
        name: Arg<'c>,
        step: impl FnOnce(&mut OpenLock<'c>) -> T,
    ) -> Result<T, Error> {
        let _stretch = Stretch::begin(ctx);
        let mut notices = Notices::default();
        let outcome = Self::with_notices(ctx, name, clock::now(), &mut notices, step)?;
        notices.send(ctx);
        Ok(outcome)
    }

    /// Works on a key as [`Self::with`] does, at `now`, and adds to `notices`, which the caller sends: no callback of another
    /// module comes in between.
    ///
    /// # Errors
    /// As for [`Self::with`].
    pub(crate) fn with_notices<T>(
        ctx: &'c Context<'c>,
        name: Arg<'c>,
        now: Instant,
        notices: &mut Notices<'c>,
        step: impl FnOnce(&mut OpenLock<'c>) -> T,
    ) -> Result<T, Error> {
        let key = ctx.open(name, Access::Write)?;
        time::detect_stall(ctx, now);
        let mut lock = Self {
            ctx,
            name,
            now,
            key,
            made: None,
            changed: false,
            more: false,
            notices: std::mem::take(notices),
        };
        lock.begin();
        let outcome = step(&mut lock);
        lock.finish();
        *notices = std::mem::take(&mut lock.notices);
        Ok(outcome)
    }

    fn begin(&mut self) {
        if self.has_waiters() {
            let is_new = self
                .key
                .value()
                .is_some_and(|value| value.listed.get().is_none());
            if is_new {
                // It came here by RENAME, MOVE or the like, with holders that the queue does not know.
                let mut queues = waiting::queues(self.ctx).borrow_mut();
                queues.recheck_holders(self.key_ref());
            }
            self.settle();
        }
    }

    fn finish(&mut self) {
        if self.changed {
            self.settle();
        }
        let (ctx, name, now) = (self.ctx, self.name, self.now);
        if let Some(value) = self.made.take() {
            if !value.lock.is_free() {
                leases::follow(ctx, ctx.key(name), &value, now);
                self.key.set(value);
            }
        } else if let Some(value) = self.key.value() {
            if value.lock.is_free() {
                self.key.delete();
            } else {
                leases::follow(ctx, ctx.key(name), value, now);
            }
        }
    }

    /// What the key holds, or will hold once it is closed.
    pub(super) fn value(&mut self) -> Option<&mut Value> {
        match &mut self.made {
            Some(made) => Some(made),
            None => self.key.value(),
        }
    }

    /// The lock as it is now, if there is one. Holds whose lease is over are dropped, and replicas drop them, too.
    pub(crate) fn live(&mut self) -> Option<Live<'_>> {
        let (ctx, name, now) = (self.ctx, self.name, self.now);
        let Self {
            key, made, notices, ..
        } = self;
        let value = match made {
            Some(made) => made,
            None => key.value()?,
        };
        let mut live = value.lock.at(now, |owner, stake| {
            on_ended(ctx, name, now, owner, stake);
            notices.add(Notice::Expired, name);
        });
        if let Some(ended) = live.take_remains() {
            let left = live.first();
            let effect = match &left {
                Some((owner, stake)) => Effect::Sole(owner.as_ref(), *stake),
                None => Effect::Free,
            };
            effect::send(ctx, name, now, &effect);
            queue::free_holds(ctx, ctx.key(name), ended, true);
        }
        Some(live)
    }

    /// The lock as it is now, or a free one that becomes the key's if `act` leaves it held.
    pub(crate) fn with_live<T>(&mut self, act: impl FnOnce(&mut Live<'_>) -> T) -> T {
        let (ctx, name) = (self.ctx, self.name);
        if let Some(mut live) = self.live() {
            let emptied = live.is_empty();
            let outcome = act(&mut live);
            if let Some(ended) = live.take_remains() {
                queue::free_holds(ctx, ctx.key(name), ended, true);
            }
            if emptied {
                // Replicas have dropped the key with its last hold, and the key's TTL with it. Drop the TTL here, too: a client set it
                // during the last hold, and it must not cut the next one short.
                self.key.persist();
            }
            return outcome;
        }
        let mut lock = Lock::free();
        let outcome = act(&mut lock.at(self.now, |_, _| {}));
        if !lock.is_free() {
            self.made = Some(Box::new(Value::new(lock)));
        }
        outcome
    }

    /// The key's database and name.
    pub(crate) fn key_ref(&self) -> KeyRef<'c> {
        self.ctx.key(self.name)
    }

    /// Whether anybody waits here.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        // There is no need to ask the server for the key's name.
        any_waiters(self.ctx) && waiting::is_awaited(self.ctx, self.key_ref())
    }

    /// The holders, for a search that spans keys.
    pub(crate) fn observe(&mut self) -> Lock {
        self.value()
            .map_or_else(Lock::free, |value| value.lock.observe())
    }

    /// Subscribers are notified of `notice` when the key is closed.
    pub(crate) fn notify(&mut self, notice: Notice) {
        self.notices.add(notice, self.name);
    }

    /// Requests have left the queue: the waiters behind them may be granted when the key is closed.
    pub(crate) fn queue_has_changed(&mut self) {
        self.changed = true;
    }

    /// Replicates the hold that `owner` has now, which the step has changed.
    pub(crate) fn replicate(&mut self, owner: OwnerRef<'_>) {
        self.changed = true;
        if let Some(stake) = self.value().and_then(|value| value.lock.hold(owner)) {
            self.replicate_hold(owner, stake);
        }
    }

    /// The same; the hold is `stake` now.
    pub(crate) fn replicate_hold(&mut self, owner: OwnerRef<'_>, stake: Stake) {
        self.changed = true;
        let (ctx, name, now) = (self.ctx, self.name, self.now);
        let alone = self.value().is_some_and(|value| value.lock.len() == 1);
        replicate(ctx, name, now, owner, stake, alone);
    }

    /// Replicates that `owner` holds nothing any more.
    pub(super) fn replicate_end(&mut self, owner: OwnerRef<'_>) {
        self.changed = true;
        let (ctx, name, now) = (self.ctx, self.name, self.now);
        let free = self.value().is_none_or(|value| value.lock.is_free());
        let effect = if free {
            Effect::Free
        } else {
            Effect::Drop(owner)
        };
        effect::send(ctx, name, now, &effect);
    }
}

/// Whether anybody waits anywhere, which mostly nobody does.
fn any_waiters(ctx: &Context<'_>) -> bool {
    !waiting::queues(ctx).borrow().is_empty()
}

pub(super) fn replicate(
    ctx: &Context<'_>,
    name: Arg<'_>,
    now: Instant,
    owner: OwnerRef<'_>,
    stake: Stake,
    alone: bool,
) {
    let effect = if alone {
        Effect::Sole(owner, stake)
    } else {
        Effect::Put(owner, stake)
    };
    time::note_deadline(ctx, stake.deadline);
    effect::send(ctx, name, now, &effect);
}

fn on_ended(ctx: &Context<'_>, name: Arg<'_>, now: Instant, owner: &Owner, stake: &Stake) {
    leases::count_ended(ctx, stake);
    effect::send(ctx, name, now, &Effect::Drop(owner.as_ref()));
}

/// Something that happened to a hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Notice {
    Acquired,
    Released,
    Passed,
    Expired,
    Revoked,
}

impl Notice {
    fn event(self) -> &'static CStr {
        match self {
            Self::Acquired => c"lock.acquire",
            Self::Released => c"lock.release",
            Self::Passed => c"lock.pass",
            Self::Expired => c"lock.expire",
            Self::Revoked => c"lock.revoke",
        }
    }
}

/// Notices in the order in which things happened.
#[derive(Debug, Default)]
#[must_use = "subscribers wait for them"]
pub(crate) struct Notices<'c> {
    /// Mostly there is one, which needs no allocation.
    first: Option<(Notice, Arg<'c>)>,
    more: Vec<(Notice, Arg<'c>)>,
}

impl<'c> Notices<'c> {
    pub(super) fn add(&mut self, notice: Notice, key: Arg<'c>) {
        match self.first {
            None => self.first = Some((notice, key)),
            Some(_) => self.more.push((notice, key)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Notifies the subscribers of key-space events of class `d`. No key may be open, and no borrow held.
    #[inline]
    pub(crate) fn send(self, ctx: &Context<'_>) {
        let Some((notice, key)) = self.first else {
            return;
        };
        ctx.notify(notice.event(), key);
        for (notice, key) in self.more {
            ctx.notify(notice.event(), key);
        }
    }
}
