//! Performs a call of a program on a lock, and returns its result in the model's terms.

use mortise_core::{
    AcquireError, Busy, Count, Grant, Instant, Lease, Lock, Micros, Owner, OwnerRef, Pass,
    PassError, Release, ReleaseError, Request, Sharing, Stake, Terms, Token, TokenClock, Turn,
};

use super::reference::{Call, Hold, Reply, Verb};

/// The result of a call: the holds that ended before it, in the order reported, and its reply.
pub(crate) type Outcome = (Vec<(Vec<u8>, Stake)>, Reply);

impl Call {
    pub(crate) fn owner(&self) -> Option<&[u8]> {
        (self.verb != Verb::Look).then_some(&self.owner)
    }

    /// The owners whose holds it may change.
    pub(crate) fn owners(&self) -> Vec<&[u8]> {
        let new_owner = (self.verb == Verb::Pass).then_some(&self.new_owner[..]);
        self.owner().into_iter().chain(new_owner).collect()
    }
}

pub(crate) fn owner(bytes: &[u8]) -> OwnerRef<'_> {
    OwnerRef::new(bytes).expect("1 to 255 bytes")
}

pub(crate) fn stakes(lock: &Lock) -> Vec<(Vec<u8>, Stake)> {
    let copy = |(owner, stake): (Owner, Stake)| (owner.text().to_vec(), stake);
    lock.holds().map(copy).collect()
}

pub(crate) fn as_hold(key: usize, owner: &Owner, stake: &Stake) -> Hold {
    hold_of(key, &owner.text(), stake)
}

pub(crate) fn hold_of(key: usize, owner: &[u8], stake: &Stake) -> Hold {
    Hold {
        key,
        owner: owner.to_vec(),
        write: stake.write.into(),
        read: stake.read.into(),
        token: stake.token.get(),
        ends: stake.deadline.as_millis(),
        since: stake.since.as_millis(),
        client: stake.touched.client(),
        revoked: stake.revoked,
    }
}

/// Performs `call` on a lock at `now`, after reporting its ended holds.
pub(crate) fn perform(
    lock: &mut Lock,
    tokens: &mut TokenClock,
    now: u64,
    wall: u64,
    call: &Call,
) -> Outcome {
    let mut ended = Vec::new();
    let mut live = lock.at(Instant::from_millis(now), |owner, stake| {
        ended.push((owner.text().to_vec(), *stake));
    });
    let wall = Micros(wall);
    let token = |value: u64| Token::new(value).expect("a token");
    let lease = |ms: u64| Lease::from_millis(ms).expect("a lease");
    let (name, lease) = (owner(&call.owner), lease(call.lease));
    let (named, fence) = (call.token.map(token), call.fence.map(token));
    let reply = match call.verb {
        Verb::Acquire => {
            let count = |count: u32| Count::new(count).expect("a count");
            let within = call.limit.map(|limit| Sharing::within(count(limit)));
            let request = Request {
                owner: name,
                terms: Terms {
                    sharing: within.unwrap_or(call.mode.into()),
                    lease,
                    holds: call.holds.map(count),
                    fence,
                    token: named,
                    client: call.client,
                },
            };
            // A command checks the bound first.
            match fence.map(|fence| tokens.check(fence, wall)) {
                Some(Err(error)) => Reply::TokenTooHigh {
                    bound: error.bound.get(),
                },
                _ => acquired(live.acquire(&request, Turn::First, tokens, wall)),
            }
        }
        Verb::Release => match live.release(&Release {
            owner: name,
            how: call.how,
            token: named,
        }) {
            Ok(released) => Reply::Left(released.left, released.changed),
            Err(ReleaseError::NotHeld) => Reply::Null,
            Err(ReleaseError::ModeNotNamed) => Reply::NameTheMode,
        },
        Verb::Renew => {
            let renewed = live.renew(name, lease, named);
            let stake = renewed.and(lock.hold(name));
            assert_eq!(renewed, stake);
            renewed.map_or(Reply::Null, |stake| Reply::Token(stake.token.get()))
        }
        Verb::Pass => {
            let pass = Pass {
                owner: name,
                new_owner: owner(&call.new_owner),
                lease,
                token: named,
                client: call.client,
            };
            let held = live.hold(name);
            match live.pass(&pass, tokens, wall) {
                Ok(passed) => {
                    assert_eq!(Some(passed.since), held.map(|stake| stake.since));
                    Reply::Passed(passed.token.get())
                }
                Err(PassError::NotHeld) => Reply::Null,
                Err(PassError::AlreadyHeld) => Reply::AlreadyHeld,
                Err(PassError::OutOfTokens) => Reply::OutOfTokens,
            }
        }
        Verb::Revoke => {
            let revoked = live.revoke(name, named);
            revoked.map_or(Reply::Null, |it| Reply::Rest(it.left, it.changed))
        }
        Verb::Fence => match live.fence(name, fence.unwrap_or(token(1)), tokens, wall) {
            Ok(stake) => {
                assert_eq!(stake, stake.and(lock.hold(name)));
                stake.map_or(Reply::Null, |stake| Reply::Token(stake.token.get()))
            }
            Err(error) => Reply::TokenTooHigh {
                bound: error.bound.get(),
            },
        },
        Verb::Look => Reply::Silence,
    };
    (ended, reply)
}

fn acquired(result: Result<Grant, AcquireError>) -> Reply {
    match result {
        Ok(Grant::New(stake)) => Reply::New(stake.token.get()),
        Ok(Grant::Reentry(stake)) => Reply::Reentry(stake.token.get()),
        Ok(Grant::Upgrade(stake)) => Reply::Upgrade(stake.token.get()),
        Err(AcquireError::Busy(busy)) => Reply::Wait {
            upgrade: busy == Busy::Upgrade,
        },
        Err(AcquireError::CountTooHigh) => Reply::CountTooHigh,
        Err(AcquireError::NotHeldByToken | AcquireError::NoRoom) => Reply::Null,
        Err(AcquireError::Revoked) => Reply::Revoked,
        Err(AcquireError::OutOfTokens) => Reply::OutOfTokens,
        Err(AcquireError::HoldsOne) => unreachable!("it asks for one key"),
    }
}
