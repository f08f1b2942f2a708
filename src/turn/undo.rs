//! Grants that nobody could be told of are taken back.

use crate::turn::settle::OpenLock;
use crate::waiting::mail;
use crate::waiting::undelivered::{self, UndeliveredGrant};

impl OpenLock<'_> {
    /// Undoes the grants that nobody could be told of.
    pub(crate) fn take_back(&mut self, mut undelivered: Vec<UndeliveredGrant>) {
        // A server that closes clients for the memory that they take does so behind their last reply.
        if undelivered.iter().any(|grant| grant.told)
            && self.ctx.setting(c"maxmemory-clients") != Some(0)
        {
            undelivered.retain(|grant| !grant.told);
        }
        // One that another one touched since can be undone after that one: those of boxes come in no order.
        loop {
            let before = undelivered.len();
            undelivered.retain(|grant| !self.undo(grant));
            if undelivered.is_empty() || undelivered.len() == before {
                break;
            }
        }
        for grant in undelivered {
            mail::hand_on(self.ctx, &grant);
            undelivered::hand_on(self.ctx, &grant);
        }
    }

    /// False if the hold was touched since the grant.
    fn undo(&mut self, grant: &UndeliveredGrant) -> bool {
        let owner = grant.owner.as_ref();
        let left = self.live().and_then(|mut live| {
            // A hold that was made anew has another token.
            let same = live.hold(owner)?.token == grant.token;
            let undone = same && live.undo(owner, grant.granted, grant.before);
            undone.then(|| live.hold(owner).is_some())
        });
        match left {
            None => return false,
            Some(true) => self.announce(owner),
            Some(false) => self.announce_end(owner),
        }
        self.ctx.notify(c"lock.release", self.name);
        true
    }
}
