//! Requests for several keys at once (`LOCK.MACQUIRE`), as the module answers them: all keys in one instant, or none.

use mortise_core::{
    Busy, Decided, Grant, KeyId, KeyList, Lease, Lock, OwnerRef, PendingKey, PendingRequest,
    Request, Sharing, Stake, Terms, Token, Verdict, Waiter, WaiterId,
};

use super::commands::{DEADLOCK, LEFT, NOT_GRANTING, REVOKED, Words};
use super::resp::Out;
use super::{Server, key_id};

const HOLDS_ONE: &str = "ERR the owner holds one of these keys";
const WAITS_HERE: &str = "ERR the owner waits at one of these keys";

struct Call<'a> {
    keys: KeyList,
    request: Request<'a>,
    /// How long, and by which box.
    by_mail: Option<(u64, &'a [u8])>,
}

/// The state of a key when the request came.
struct Found {
    hold: Option<Stake>,
    has_waiters: bool,
    /// Whether nobody holds it and the server grants.
    is_free: bool,
    held: Lock,
}

/// The grant of a queued request.
struct Granted {
    stake: Stake,
    waiter: Waiter,
    keys: KeyList,
}

fn parse<'a>(words: &mut Words<'a>) -> Option<Call<'a>> {
    let owner = OwnerRef::new(words.next()?)?;
    let lease = Lease::from_millis(words.number()?)?;
    let count = words.number()?;
    let keys: Option<Vec<KeyId>> = (0..count).map(|_| words.next().map(key_id)).collect();
    let (mut wait, mut mailbox) = (None, None);
    while let Some(option) = words.next() {
        match option {
            b"WAIT" => wait = Some(words.number()?),
            b"MAIL" => mailbox = Some(words.next()?),
            _ => return None,
        }
    }
    let terms = Terms {
        sharing: Sharing::several(count as u8),
        lease,
        holds: None,
        fence: None,
        token: None,
        client: 0,
    };
    Some(Call {
        keys: KeyList::Several(keys?.into()),
        request: Request { owner, terms },
        by_mail: wait.zip(mailbox),
    })
}

impl Server {
    pub(super) fn acquire_several(&mut self, words: &mut Words<'_>) -> Option<Vec<u8>> {
        let call = parse(words)?;
        let (keys, owner, now) = (call.keys.as_slice(), call.request.owner, self.instant());
        let has_left = |key: &KeyId| self.left.has_left(key.as_ref(), owner, now);
        if keys.iter().any(has_left) {
            return Some(Out::error(LEFT));
        }
        keys.iter().for_each(|key| self.settle(&key.name));
        let reply = self.take_several(&call);
        self.dirty.extend(keys.iter().cloned());
        Some(reply)
    }

    fn take_several(&mut self, call: &Call<'_>) -> Vec<u8> {
        let keys = call.keys.as_slice();
        let found = keys.iter().map(|key| self.find(key, &call.request));
        let found: Vec<Found> = found.collect();
        if found.iter().any(|found| found.hold.is_some()) {
            return self.repeat_several(call, &found);
        }
        match self.several_queued_already(call) {
            Ok(Some(id)) => return self.take_over_several(call, id),
            Ok(None) => {}
            Err(error) => return Out::error(error),
        }
        let all_free = found.iter().all(|found| found.is_free);
        if all_free && !found.iter().any(|found| found.has_waiters) {
            return self.grant_several_now(call);
        }
        if call.by_mail.is_none() && !all_free {
            return Out::null();
        }
        let pending = self.pending_several(call, found);
        let Ok(enqueued) = self.queues.enqueue(&pending) else {
            return call
                .by_mail
                .map_or_else(Out::null, |_| Out::error(DEADLOCK));
        };
        let id = enqueued.id;
        if let Some((_, mailbox)) = call.by_mail {
            self.dirty.extend(enqueued.moved);
            return self.expect_several(call, id, mailbox);
        }
        // It cannot wait. It is granted only if it moves to the head of all its queues to end a cycle.
        if !enqueued.is_first {
            self.queues.withdraw(enqueued);
            return Out::null();
        }
        self.dirty.extend(enqueued.moved);
        let granted = self.grant_enqueued(id);
        self.remove(id);
        Out::number_or_null(granted.map(|granted| granted.stake.token.get()))
    }

    fn find(&mut self, key: &KeyId, request: &Request<'_>) -> Found {
        let (has_waiters, grants) = (
            self.queues.get(key.as_ref()).is_some(),
            !self.forbids_grants(),
        );
        self.with_live(&key.name, |_, live| Found {
            hold: live.hold(request.owner),
            has_waiters,
            is_free: grants && live.admits(request),
            held: live.lock().observe(),
        })
    }

    /// The owner holds some of the keys. If it holds all by one token, this is the same request again, which renews.
    fn repeat_several(&mut self, call: &Call<'_>, found: &[Found]) -> Vec<u8> {
        let holds: Option<Vec<Stake>> = found.iter().map(|found| found.hold).collect();
        let token = holds.as_deref().map(|holds| holds[0].token);
        let (Some(holds), Some(token)) = (holds, token) else {
            return Out::error(HOLDS_ONE);
        };
        let is_other = |hold: &Stake| hold.write == 0 || hold.token != token;
        if holds.iter().any(is_other) {
            return Out::error(HOLDS_ONE);
        }
        if holds.iter().any(|hold| hold.revoked) {
            return Out::error(REVOKED);
        }
        if self.forbids_grants() {
            return Out::error(NOT_GRANTING);
        }
        let Request { owner, terms } = call.request;
        for key in call.keys.as_slice() {
            self.with_live(&key.name, |_, live| {
                live.renew(owner, terms.lease, Some(token))
            });
        }
        self.accepted_several(call);
        Out::number(token.get())
    }

    /// The owner's request that waits for exactly these keys; an error if it waits at one of them for anything else.
    fn several_queued_already(&self, call: &Call<'_>) -> Result<Option<WaiterId>, &'static str> {
        let owner = call.request.owner;
        let there = |key: &KeyId| self.queues.requests_of(key.as_ref(), owner);
        let keys = call.keys.as_slice();
        let Some(id) = keys.iter().find_map(|key| there(key).first().copied()) else {
            return Ok(None);
        };
        let its = self.queues.keys_of(id);
        let is_same = its.is_some_and(|its| its.are(call.keys.as_slice()));
        match is_same && call.by_mail.is_some() && self.mail.is_expected(id) {
            true => Ok(Some(id)),
            false => Err(WAITS_HERE),
        }
    }

    fn take_over_several(&mut self, call: &Call<'_>, id: WaiterId) -> Vec<u8> {
        let Some((wait, mailbox)) = call.by_mail else {
            return Out::null();
        };
        let until = self.end_of_wait(wait);
        self.queues.take_over(id, call.request.terms, until);
        self.expect_several(call, id, mailbox)
    }

    fn next_token(&mut self, request: &Request<'_>) -> Token {
        let wall = self.wall();
        let token = self.tokens.next(wall, request.terms.fence);
        token.expect("a run takes few tokens")
    }

    fn grant_several_now(&mut self, call: &Call<'_>) -> Vec<u8> {
        let token = self.next_token(&call.request);
        for key in call.keys.as_slice().iter().rev() {
            let taken = self.with_live(&key.name, |_, live| live.take(&call.request, token));
            taken.expect("all are free");
        }
        self.accepted_several(call);
        Out::number(token.get())
    }

    fn pending_several(&self, call: &Call<'_>, found: Vec<Found>) -> PendingRequest {
        let keys = call.keys.as_slice().iter().zip(found);
        let keys = keys.map(|(key, found)| PendingKey {
            key: key.clone(),
            held: found.held,
        });
        PendingRequest {
            keys: keys.collect(),
            owner: call.request.owner.to_owner(),
            terms: call.request.terms,
            busy: Busy::Held,
            since: self.instant(),
            until: self.end_of_wait(call.by_mail.map_or(0, |it| it.0)),
        }
    }

    fn expect_several(&mut self, call: &Call<'_>, id: WaiterId, mailbox: &[u8]) -> Vec<u8> {
        let mailbox = self.open_box(mailbox);
        let keys = call.keys.as_slice();
        self.mail.expect(id, mailbox, keys.len());
        Out::queued(mailbox)
    }

    fn accepted_several(&mut self, call: &Call<'_>) {
        if let Some((_, mailbox)) = call.by_mail {
            self.open_box(mailbox);
        }
    }

    /// Grants a queued request if it is the first at each of its keys and all of them are free.
    pub(super) fn grant_several(&mut self, id: WaiterId) {
        let Some(Granted {
            stake,
            waiter,
            keys,
        }) = self.grant_enqueued(id)
        else {
            return;
        };
        let decided = Decided {
            waiter: Box::new(waiter),
            keys,
            verdict: Verdict::Granted {
                grant: Grant::New(stake),
                before: None,
                alone: true,
            },
        };
        self.decide(decided);
    }

    fn grant_enqueued(&mut self, id: WaiterId) -> Option<Granted> {
        if self.forbids_grants() {
            return None;
        }
        let keys = self.queues.keys_of(id)?;
        let is_ready = |server: &mut Server, key: &KeyId| {
            server.with_live(&key.name, |server, live| {
                server.queues.is_grantable(key.as_ref(), id, live)
            })
        };
        if !keys.as_slice().iter().all(|key| is_ready(self, key)) {
            return None;
        }
        let waiter = self.queues.waiter(id)?.1.clone();
        let token = self.next_token(&waiter.request());
        let mut stake = None;
        for key in keys.as_slice().iter().rev() {
            let granted = self.with_live(&key.name, |server, live| {
                let queues = &mut server.queues;
                queues.grant_last_key(key.as_ref(), id, live, token)
            });
            stake = Some(granted.expect("all are ready"));
            self.dirty.insert(key.clone());
        }
        Some(Granted {
            stake: stake?,
            waiter,
            keys,
        })
    }
}
