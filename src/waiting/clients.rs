//! Every blocked client, and what it waits for: a lock, or letters.

use std::collections::BTreeMap;

use mortise_core::WaiterId;
use mortise_core::mail::BoxId;

use crate::error::Error;
use crate::ffi::Blocked;
use crate::waiting::answer::Answer;

/// What a blocked client waits for. It stays blocked for a moment after it has been answered.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    Lock(WantedLock),
    Letters(WantedLetters),
}

#[derive(Clone, Debug)]
pub(super) struct WantedLock {
    pub(super) waiter: WaiterId,
    /// `None` while it waits.
    pub(super) answer: Option<Answer>,
    /// The client got its answer.
    pub(super) delivered: bool,
}

/// A LOCK.MAIL.
#[derive(Clone, Debug)]
pub(super) struct WantedLetters {
    /// The id of its connection.
    pub(super) client: u64,
    pub(super) id: BoxId,
    pub(super) call: MailCall,
    /// It gets letters, or this refusal.
    pub(super) refusal: Option<Error>,
    /// It waited when its connection was closed, or when CLIENT UNBLOCK … ERROR ended it.
    pub(super) is_lost: bool,
}

/// What a LOCK.MAIL asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MailCall {
    /// When it arrived, in microseconds of the boot-time clock.
    pub(crate) arrived: u64,
    /// How many letters it takes at most.
    pub(crate) count: usize,
}

/// Every blocked client.
#[derive(Debug, Default)]
pub(super) struct Clients {
    wanted: BTreeMap<Blocked, Wanted>,
    /// Those whose request for a lock waits.
    by_waiter: BTreeMap<WaiterId, Blocked>,
}

impl Clients {
    /// How many are blocked or about to be unblocked.
    pub(super) fn len(&self) -> usize {
        self.wanted.len()
    }

    /// How many have a request that waits for a lock.
    pub(super) fn waiters(&self) -> usize {
        self.by_waiter.len()
    }

    /// A client has been blocked until its request for a lock is answered.
    pub(super) fn add_waiter(&mut self, blocked: Blocked, waiter: WaiterId) {
        let wanted = WantedLock {
            waiter,
            answer: None,
            delivered: false,
        };
        self.wanted.insert(blocked, Wanted::Lock(wanted));
        self.by_waiter.insert(waiter, blocked);
    }

    /// A LOCK.MAIL has been blocked until its box has letters.
    pub(super) fn add_reader(&mut self, blocked: Blocked, client: u64, id: BoxId, call: MailCall) {
        let wanted = WantedLetters {
            client,
            id,
            call,
            refusal: None,
            is_lost: false,
        };
        self.wanted.insert(blocked, Wanted::Letters(wanted));
    }

    /// What the client waits for.
    pub(super) fn get(&self, blocked: Blocked) -> Option<Wanted> {
        self.wanted.get(&blocked).cloned()
    }

    /// The request of a waiter is answered. Its client, if it is blocked and has to be woken.
    pub(super) fn answer_waiter(&mut self, waiter: WaiterId, answer: Answer) -> Option<Blocked> {
        let blocked = self.by_waiter.remove(&waiter)?;
        match self.wanted.get_mut(&blocked) {
            Some(Wanted::Lock(wanted)) => wanted.answer = Some(answer),
            Some(Wanted::Letters(_)) | None => return None,
        }
        Some(blocked)
    }

    /// Answers a LOCK.MAIL with letters, or with `refusal`.
    pub(super) fn answer_reader(&mut self, blocked: Blocked, refusal: Option<Error>) {
        if let Some(Wanted::Letters(wanted)) = self.wanted.get_mut(&blocked) {
            wanted.refusal = refusal;
        }
    }

    /// The connection of a waiting LOCK.MAIL was closed, it seems.
    pub(super) fn set_lost(&mut self, blocked: Blocked) {
        if let Some(Wanted::Letters(wanted)) = self.wanted.get_mut(&blocked) {
            wanted.is_lost = true;
        }
    }

    /// The server writes the answer to a request for a lock now.
    pub(super) fn set_delivered(&mut self, blocked: Blocked) {
        if let Some(Wanted::Lock(wanted)) = self.wanted.get_mut(&blocked) {
            wanted.delivered = true;
        }
    }

    /// The server no longer needs the client's handle.
    pub(super) fn remove(&mut self, blocked: Blocked) -> Option<Wanted> {
        self.wanted.remove(&blocked)
    }
}
