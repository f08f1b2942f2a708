//! Key-space events of locks, collected while their keys are open and sent once they are closed.
//!
//! A subscriber may be another module, which the server calls at once, and whose callback may change this very key. So
//! nothing of ours may be open then.

use std::ffi::CStr;

use crate::ffi::{Arg, Context};

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

    /// Adds those of `other` behind the ones here.
    pub(super) fn append(&mut self, other: Self) {
        for (notice, key) in other.first.into_iter().chain(other.more) {
            self.add(notice, key);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Notifies the subscribers of key-space events of class `d`. No key may be open, and no borrow held.
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
