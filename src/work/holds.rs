//! What ends a hold, or a part of it: its owner, who may pass it on, somebody who revokes it, or a grant that nobody received.

use mortise_core::{
    Lease, Micros, OwnerRef, Pass, PassError, Passed, Release, ReleaseError, Released, Revoked,
    Token, Undo,
};

use crate::error::Error;
use crate::keys::tokens;
use crate::totals::{self, Total};
use crate::waiting::{self, undelivered, waiters};
use crate::work::open_lock::Notice;
use crate::work::open_lock::OpenLock;

impl OpenLock<'_> {
    /// Releases a hold or part of it, and replicates that.
    ///
    /// # Errors
    /// As the core says; nothing has changed.
    pub(crate) fn release(&mut self, release: &Release<'_>) -> Result<Released, ReleaseError> {
        let released = match self.live() {
            Some(mut live) => live.release(release)?,
            None => return Err(ReleaseError::NotHeld),
        };
        if released.changed {
            if released.left > 0 {
                self.replicate(release.owner);
            } else {
                self.replicate_end(release.owner);
                let held = self.now.millis_since(released.since);
                totals::hold_times(self.ctx).borrow_mut().record(held);
            }
            totals::add(self.ctx, Total::Releases);
            self.notify(Notice::Released);
        }
        Ok(released)
    }

    /// Extends the lease of a hold, and replicates that. `None` if `owner` holds nothing here, or not with `token`, or if its hold is revoked.
    pub(crate) fn renew(
        &mut self,
        owner: OwnerRef<'_>,
        lease: Lease,
        token: Option<Token>,
    ) -> Option<Token> {
        let renewed = self.live()?.renew(owner, lease, token)?;
        self.replicate_hold(owner, renewed);
        Some(renewed.token)
    }

    /// Passes a hold on to another owner, and replicates that.
    ///
    /// # Errors
    /// As the core says; nothing has changed.
    pub(crate) fn pass(&mut self, pass: &Pass<'_>, wall: Micros) -> Result<Passed, PassError> {
        let (ctx, now) = (self.ctx, self.now);
        let passed =
            self.with_live(|live| live.pass(pass, &mut tokens::clock(ctx).borrow_mut(), wall))?;
        // The effect "this owner holds alone" ends all other holds on replicas, too.
        if self.value().is_some_and(|value| value.lock.len() > 1) {
            self.replicate_end(pass.owner);
        }
        self.replicate(pass.new_owner);
        if self.has_waiters() {
            let mut queues = waiting::queues(ctx).borrow_mut();
            queues.came_to_hold(self.key_ref(), pass.new_owner);
        }
        let held = now.millis_since(passed.since);
        totals::hold_times(ctx).borrow_mut().record(held);
        totals::add(ctx, Total::Passes);
        self.notify(Notice::Passed);
        Ok(passed)
    }

    /// Makes a hold end with its current lease, and replicates that. Refuses the requests of its owner that wait here.
    /// `None` if `owner` holds nothing here, or not with `token`.
    pub(crate) fn revoke(&mut self, owner: OwnerRef<'_>, token: Option<Token>) -> Option<Revoked> {
        let revoked = self.live()?.revoke(owner, token)?;
        // Where nothing is granted, a hold that was revoked elsewhere may have come to where its owner waits.
        self.queue_has_changed();
        waiters::refuse_all_of(self.ctx, self.key_ref(), owner, &Error::REVOKED);
        if revoked.changed {
            self.replicate(owner);
            totals::add(self.ctx, Total::Revocations);
            self.notify(Notice::Revoked);
        }
        Some(revoked)
    }

    /// Undoes grants that nobody received.
    pub(crate) fn undo_grants(&mut self, mut undelivered: Vec<Undo>) {
        // If a later grant changed the same hold, that one has to be undone first. They may come in any order, so try until nothing
        // changes.
        loop {
            let before = undelivered.len();
            undelivered.retain(|undo| !self.undo(undo));
            if undelivered.is_empty() || undelivered.len() == before {
                break;
            }
        }
        for undo in undelivered {
            undelivered::merge(self.ctx, self.key_ref(), &undo);
        }
    }

    /// Undoes one grant. Returns false if another grant has changed the hold since.
    fn undo(&mut self, undo: &Undo) -> bool {
        let owner = undo.owner.as_ref();
        let left = self.live().and_then(|mut live| {
            // A new hold of the same owner has another token.
            let same = live.hold(owner)?.token == undo.token;
            let before = undo.before.as_deref().copied();
            let undone = same && live.undo(owner, undo.granted, before);
            undone.then(|| live.hold(owner).is_some())
        });
        match left {
            None => return false,
            Some(true) => self.replicate(owner),
            Some(false) => self.replicate_end(owner),
        }
        self.notify(Notice::Released);
        true
    }
}
