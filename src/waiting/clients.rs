//! Every blocked client, and what it waits for: a lock, or letters.

use std::collections::BTreeMap;

use mortise_core::WaiterId;
use mortise_core::mail::{BoxId, Outcome};

use crate::error::Error;
use crate::ffi::{Blocked, BlockedId};

/// What a blocked client waits for. It stays blocked for a moment after it has been answered.
#[derive(Clone, Debug)]
pub(super) enum Awaited {
    Lock(AwaitedLock),
    Letters(AwaitedLetters),
}

#[derive(Clone, Debug)]
pub(super) struct AwaitedLock {
    pub(super) waiter: WaiterId,
    /// `None` while it waits.
    pub(super) answer: Option<Outcome>,
}

/// A LOCK.MAIL.
#[derive(Clone, Debug)]
pub(super) struct AwaitedLetters {
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
    clients: BTreeMap<BlockedId, Client>,
    /// Those whose request for a lock waits.
    by_waiter: BTreeMap<WaiterId, BlockedId>,
}

#[derive(Debug)]
struct Client {
    /// `None` once it has been answered, and is unblocked by who took this.
    blocked: Option<Blocked>,
    awaited: Awaited,
}

impl Clients {
    /// How many are blocked or about to be unblocked.
    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }

    /// How many have a request that waits for a lock.
    pub(super) fn waiters(&self) -> usize {
        self.by_waiter.len()
    }

    /// A client has been blocked until its request for a lock is answered.
    pub(super) fn add_waiter(&mut self, blocked: Blocked, waiter: WaiterId) {
        let awaited = AwaitedLock {
            waiter,
            answer: None,
        };
        let id = self.add(blocked, Awaited::Lock(awaited));
        self.by_waiter.insert(waiter, id);
    }

    fn add(&mut self, blocked: Blocked, awaited: Awaited) -> BlockedId {
        let id = blocked.id();
        let blocked = Some(blocked);
        self.clients.insert(id, Client { blocked, awaited });
        id
    }

    /// A LOCK.MAIL has been blocked until its box has letters.
    pub(super) fn add_reader(
        &mut self,
        blocked: Blocked,
        client: u64,
        id: BoxId,
        call: MailCall,
    ) -> BlockedId {
        let awaited = AwaitedLetters {
            client,
            id,
            call,
            refusal: None,
            is_lost: false,
        };
        self.add(blocked, Awaited::Letters(awaited))
    }

    /// What the client waits for.
    pub(super) fn get(&self, id: BlockedId) -> Option<Awaited> {
        self.clients.get(&id).map(|client| client.awaited.clone())
    }

    /// The request of a waiter is answered. Its client, if it is blocked, for the caller to wake.
    pub(super) fn answer_waiter(&mut self, waiter: WaiterId, answer: Outcome) -> Option<Blocked> {
        let id = self.by_waiter.remove(&waiter)?;
        let client = self.clients.get_mut(&id)?;
        match &mut client.awaited {
            Awaited::Lock(awaited) => awaited.answer = Some(answer),
            Awaited::Letters(_) => return None,
        }
        client.blocked.take()
    }

    /// Answers a LOCK.MAIL with letters, or with `refusal`. Its client, for the caller to wake.
    pub(super) fn answer_reader(
        &mut self,
        id: BlockedId,
        refusal: Option<Error>,
    ) -> Option<Blocked> {
        let client = self.clients.get_mut(&id)?;
        match &mut client.awaited {
            Awaited::Letters(awaited) => awaited.refusal = refusal,
            Awaited::Lock(_) => return None,
        }
        client.blocked.take()
    }

    /// The connection of a waiting LOCK.MAIL was closed, it seems.
    pub(super) fn set_lost(&mut self, id: BlockedId) {
        let client = self.clients.get_mut(&id);
        if let Some(Awaited::Letters(awaited)) = client.map(|client| &mut client.awaited) {
            awaited.is_lost = true;
        }
    }

    /// The server no longer needs the client's handle.
    pub(super) fn remove(&mut self, id: BlockedId) -> Option<Awaited> {
        self.clients.remove(&id).map(|client| client.awaited)
    }
}
