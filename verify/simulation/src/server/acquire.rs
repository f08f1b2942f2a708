//! Requests for one key: granted now, or enqueued.

use mortise_core::{
    AcquireError, Busy, Count, Grant, Lease, Mode, PendingKey, PendingRequest, Request, Sharing,
    Terms, Token, Turn, WaiterId,
};

use super::commands::{DEADLOCK, LEFT, REVOKED, Words};
use super::resp::Out;
use super::{Server, key_id, key_ref};

impl Server {
    pub(super) fn acquire(&mut self, words: &mut Words<'_>, mode: Mode) -> Option<Vec<u8>> {
        let (key, owner) = words.who()?;
        let lease = Lease::from_millis(words.number()?)?;
        let (mut wait, mut mailbox, mut holds, mut fence, mut token) =
            (None, None, None, None, None);
        let mut sharing = mode.into();
        while let Some(option) = words.next() {
            match option {
                b"WAIT" => wait = Some(words.number()?),
                b"MAIL" => mailbox = Some(words.next()?),
                b"HOLDS" => holds = Count::new(words.number()? as u32),
                b"LIMIT" => sharing = Sharing::within(Count::new(words.number()? as u32)?),
                b"FENCE" => fence = Some(Token::new(words.number()?)?),
                b"TOKEN" => token = Some(Token::new(words.number()?)?),
                _ => return None,
            }
        }
        let terms = Terms {
            sharing,
            lease,
            holds,
            fence,
            token,
            client: 0,
        };
        let request = Request { owner, terms };
        if self.left.has_left(key_ref(key), owner, self.instant()) {
            return Some(Out::error(LEFT));
        }
        let wall = self.wall();
        if let Some(fence) = fence
            && self.tokens.check(fence, wall).is_err()
        {
            return Some(Out::error("ERR FENCE is too high"));
        }
        self.settle(key);
        let first = self.queues.first_request_of(key_ref(key), owner);
        if first.is_some_and(|first| self.queues.keys_of(first).is_some()) {
            return Some(Out::error("ERR the owner waits here for several keys"));
        }
        let turn = match self.queues.get(key_ref(key)) {
            Some(_) => Turn::Behind,
            None => Turn::First,
        };
        let outcome = self.try_acquire(key, &request, turn);
        let reply = match outcome {
            Ok(grant) => {
                self.accepted(mailbox);
                Out::number(grant.token().get())
            }
            Err(AcquireError::Busy(busy)) => self.wait(key, &request, busy, wait.zip(mailbox)),
            Err(AcquireError::NotHeldByToken | AcquireError::NoRoom) => {
                self.accepted(mailbox);
                Out::null()
            }
            Err(AcquireError::Revoked) => Out::error(REVOKED),
            Err(error) => Out::error(&format!("ERR {error:?}")),
        };
        self.settle(key);
        Some(reply)
    }

    fn try_acquire(
        &mut self,
        key: &[u8],
        request: &Request<'_>,
        turn: Turn,
    ) -> Result<Grant, AcquireError> {
        let is_closed = self.forbids_grants();
        self.with_live(key, |server, live| {
            if is_closed {
                return Err(live.refuse_in_grace(request));
            }
            let wall = server.wall();
            live.acquire(request, turn, &mut server.tokens, wall)
        })
    }

    /// The request was accepted: its box exists from now on.
    fn accepted(&mut self, mailbox: Option<&[u8]>) {
        if let Some(mailbox) = mailbox {
            self.open_box(mailbox);
        }
    }

    /// The request cannot be granted. It waits if it names a time and a box.
    fn wait(
        &mut self,
        key: &[u8],
        request: &Request<'_>,
        busy: Busy,
        by_mail: Option<(u64, &[u8])>,
    ) -> Vec<u8> {
        if let Some((wait, mailbox)) = by_mail
            && let Some(waiter) = self.queued_already(key, request)
        {
            let until = self.end_of_wait(wait);
            self.queues.take_over(waiter, request.terms, until);
            return self.expect(waiter, mailbox);
        }
        let may_pass = self.may_pass(key, request);
        if by_mail.is_none() && !may_pass {
            return Out::null();
        }
        let held = self.with_live(key, |_, live| live.lock().observe());
        let wait = by_mail.map_or(0, |(wait, _)| wait);
        let pending = PendingRequest {
            keys: vec![PendingKey {
                key: key_id(key),
                held,
            }],
            owner: request.owner.to_owner(),
            terms: request.terms,
            busy,
            since: self.instant(),
            until: self.end_of_wait(wait),
        };
        let Ok(enqueued) = self.queues.enqueue(&pending) else {
            return by_mail.map_or_else(Out::null, |_| Out::error(DEADLOCK));
        };
        let is_let_past = may_pass && enqueued.is_first;
        if !is_let_past && by_mail.is_none() {
            self.queues.withdraw(enqueued);
            return Out::null();
        }
        self.dirty.extend(enqueued.moved);
        if is_let_past {
            self.queues.remove(enqueued.id);
            let grant = self.try_acquire(key, request, Turn::First);
            self.accepted(by_mail.map(|it| it.1));
            return Out::number(grant.expect("its lock admits it").token().get());
        }
        let mailbox = by_mail.map_or(&b""[..], |(_, mailbox)| mailbox);
        self.expect(enqueued.id, mailbox)
    }

    fn queued_already(&self, key: &[u8], request: &Request<'_>) -> Option<WaiterId> {
        let there = self.queues.requests_of(key_ref(key), request.owner);
        there.into_iter().find(|id| {
            let waiter = self.queues.waiter(*id);
            waiter.is_some_and(|(_, waiter)| waiter.terms.mode() == request.terms.mode())
                && self.mail.is_expected(*id)
        })
    }

    /// Whether requests for several keys wait here, and the lock would admit this one if none did.
    fn may_pass(&mut self, key: &[u8], request: &Request<'_>) -> bool {
        let queue = self.queues.get(key_ref(key));
        queue.is_some_and(|queue| queue.first_several().is_some())
            && !self.forbids_grants()
            && self.with_live(key, |_, live| live.admits(request))
    }

    fn expect(&mut self, waiter: WaiterId, mailbox: &[u8]) -> Vec<u8> {
        let id = self.open_box(mailbox);
        self.mail.expect(waiter, id, 1);
        Out::queued(id)
    }
}
