//! Key-space events of a lock, collected while its key is open and sent once it is closed.
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

/// The notices of one key, in the order in which things happened.
#[derive(Debug, Default)]
#[must_use = "subscribers wait for them"]
pub(crate) struct Notices {
    /// Mostly there is one, which needs no allocation.
    first: Option<Notice>,
    more: Vec<Notice>,
}

impl Notices {
    pub(super) fn add(&mut self, notice: Notice) {
        match self.first {
            None => self.first = Some(notice),
            Some(_) => self.more.push(notice),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Notifies the subscribers of key-space events of class `d`. No key may be open, and no borrow held.
    pub(super) fn send(self, ctx: &Context<'_>, key: Arg<'_>) {
        for notice in self.first.into_iter().chain(self.more) {
            ctx.notify(notice.event(), key);
        }
    }
}
