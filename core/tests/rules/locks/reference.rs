//! The contract, sections 1, 2 and 4, as simply as possible: one flat list of all holds on all keys,
//! searched from the start, with plain numbers. Nothing here is fast.

use mortise_core::{How, Mode};

const MAX_COUNT: u64 = (1 << 31) - 1;
const MAX_TOKEN: u64 = (1 << 53) - 1;
const HOUR: u64 = 3_600_000_000;

/// One owner's hold on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) key: usize,
    pub(crate) owner: Vec<u8>,
    pub(crate) write: u64,
    pub(crate) read: u64,
    pub(crate) token: u64,
    /// Over from this millisecond on.
    pub(crate) ends: u64,
    pub(crate) since: u64,
    pub(crate) client: u64,
    pub(crate) revoked: bool,
}

impl Hold {
    fn count(&mut self, mode: Mode) -> &mut u64 {
        match mode {
            Mode::Read => &mut self.read,
            Mode::Write => &mut self.write,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    New(u64),
    Reentry(u64),
    Upgrade(u64),
    /// Not granted now. As an upgrader it would wait ahead of the queue.
    Wait {
        upgrade: bool,
    },
    CountTooHigh,
    TokenTooHigh {
        bound: u64,
    },
    OutOfTokens,
    /// A release: holds left, and whether any were given up.
    Left(u64, bool),
    NameTheMode,
    Passed(u64),
    /// PASS to an owner that holds.
    AlreadyHeld,
    /// A revocation: milliseconds left, and whether the hold was not revoked before.
    Rest(u64, bool),
    /// The owner's hold is revoked, so that it gets nothing more.
    Revoked,
    /// RENEW or FENCE.
    Token(u64),
    /// The owner holds nothing here, or not in that mode, or not with that token.
    Null,
    /// There was no request.
    Silence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Acquire,
    Release,
    Renew,
    Pass,
    Revoke,
    Fence,
    Look,
}

/// A request of one owner for one key, with all arguments that any verb has; each ignores those of others. Tokens are numbers here, leases
/// milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) verb: Verb,
    pub(crate) owner: Vec<u8>,
    /// The owner that gets the hold by PASS.
    pub(crate) new_owner: Vec<u8>,
    pub(crate) mode: Mode,
    pub(crate) lease: u64,
    pub(crate) holds: Option<u32>,
    /// Of a reader, no less than `holds`.
    pub(crate) limit: Option<u32>,
    /// What FENCE and acquiring commands raise the token to.
    pub(crate) fence: Option<u64>,
    /// Of the hold that the caller means.
    pub(crate) token: Option<u64>,
    pub(crate) how: How,
    pub(crate) client: u64,
}

/// A server: its holds and its last token.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reference {
    pub(crate) holds: Vec<Hold>,
    pub(crate) last: u64,
}

impl Reference {
    /// "`t` above max(the last token, wall clock in µs + 1 hour) is an error."
    pub(crate) fn bound(&self, wall: u64) -> u64 {
        self.last.max(wall + HOUR).min(MAX_TOKEN)
    }

    /// "A hold is over from the millisecond its lease ends." Removes and returns those of `key`, in
    /// the order in which they ended.
    pub(crate) fn end(&mut self, key: usize, now: u64) -> Vec<Hold> {
        let is_over = |hold: &Hold| hold.key == key && hold.ends <= now;
        let mut ended: Vec<Hold> = self
            .holds
            .iter()
            .filter(|hold| is_over(hold))
            .cloned()
            .collect();
        self.holds.retain(|hold| !is_over(hold));
        ended.sort_by_key(|hold| hold.ends);
        ended
    }

    /// The mode in which `key` is held at `now`.
    pub(crate) fn mode(&self, key: usize, now: u64) -> Option<Mode> {
        let live = || {
            self.holds
                .iter()
                .filter(move |hold| hold.key == key && hold.ends > now)
        };
        if live().any(|hold| hold.write > 0) {
            Some(Mode::Write)
        } else if live().any(|hold| hold.read > 0) {
            Some(Mode::Read)
        } else {
            None
        }
    }

    pub(crate) fn find(&self, key: usize, owner: &[u8]) -> Option<&Hold> {
        self.holds
            .iter()
            .find(|hold| hold.key == key && hold.owner == owner)
    }

    fn find_mut(&mut self, key: usize, owner: &[u8], token: Option<u64>) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| {
            hold.key == key && hold.owner == owner && token.is_none_or(|token| token == hold.token)
        })
    }

    /// "token = max(last + 1, wall clock in microseconds)", and at least what FENCE asks for.
    fn next_token(&mut self, wall: u64, fence: Option<u64>) -> Option<u64> {
        let token = (self.last + 1).max(wall).max(fence.unwrap_or(0));
        if token > MAX_TOKEN {
            return None;
        }
        self.last = token;
        Some(token)
    }

    /// Runs `call` at `now`, after [`Self::end`] has removed the ended holds.
    pub(crate) fn answer(&mut self, key: usize, now: u64, wall: u64, call: &Call) -> Reply {
        match call.verb {
            Verb::Acquire => self.acquire(key, now, wall, call),
            Verb::Release => self.release(key, call),
            Verb::Renew => match self.find_mut(key, &call.owner, call.token) {
                Some(hold) if hold.revoked => Reply::Null,
                Some(hold) => {
                    hold.ends = hold.ends.max(now + call.lease);
                    Reply::Token(hold.token)
                }
                None => Reply::Null,
            },
            Verb::Pass => self.pass(key, now, wall, call),
            Verb::Revoke => match self.find_mut(key, &call.owner, call.token) {
                Some(hold) => {
                    let rest = Reply::Rest(hold.ends - now, !hold.revoked);
                    hold.revoked = true;
                    rest
                }
                None => Reply::Null,
            },
            Verb::Fence => self.fence(key, &call.owner, call.fence.unwrap_or(1), wall),
            Verb::Look => Reply::Silence,
        }
    }

    fn acquire(&mut self, key: usize, now: u64, wall: u64, call: &Call) -> Reply {
        let (owner, mode, fence) = (&call.owner, call.mode, call.fence);
        let bound = self.bound(wall);
        if fence.is_some_and(|fence| fence > bound) {
            return Reply::TokenTooHigh { bound };
        }
        let mine = self.find(key, owner).cloned();
        if mine.as_ref().is_some_and(|mine| mine.revoked) {
            return Reply::Revoked;
        }
        // "only adds to a hold that this owner has, with that token or a higher one"
        let mine_is_older = |token| mine.as_ref().is_none_or(|mine| mine.token < token);
        if call.token.is_some_and(mine_is_older) {
            return Reply::Null;
        }
        let others_forbid = self.holds.iter().any(|other| {
            let both_read_only = mode == Mode::Read && other.write == 0;
            other.key == key && other.owner != *owner && !both_read_only
        });
        if others_forbid {
            return Reply::Wait {
                upgrade: mine.is_some(),
            };
        }
        let is_new = mine.is_none();
        let mut hold = mine.unwrap_or(Hold {
            key,
            owner: owner.clone(),
            write: 0,
            read: 0,
            token: 0,
            ends: 0,
            since: now,
            client: 0,
            revoked: false,
        });
        let upgrade = !is_new && mode == Mode::Write && hold.write == 0;
        let before = *hold.count(mode);
        let count = call.holds.map_or(before + 1, u64::from);
        if count > MAX_COUNT {
            return Reply::CountTooHigh;
        }
        let others = self.holds.iter();
        let others = others.filter(|other| other.key == key && other.owner != *owner);
        let sum = count + others.map(|other| other.read).sum::<u64>();
        if count > before && call.limit.is_some_and(|limit| sum > limit.into()) {
            return match is_new {
                true => Reply::Wait { upgrade: false },
                false => Reply::Null,
            };
        }
        if is_new || upgrade {
            match self.next_token(wall, fence) {
                Some(token) => hold.token = token,
                None => return Reply::OutOfTokens,
            }
        }
        *hold.count(mode) = count;
        hold.ends = hold.ends.max(now + call.lease);
        hold.client = call.client;
        let token = hold.token;
        self.holds
            .retain(|other| other.key != key || other.owner != *owner);
        self.holds.push(hold);
        match (is_new, upgrade) {
            (true, _) => Reply::New(token),
            (_, true) => Reply::Upgrade(token),
            _ => Reply::Reentry(token),
        }
    }

    fn release(&mut self, key: usize, call: &Call) -> Reply {
        let Some(hold) = self.find_mut(key, &call.owner, call.token) else {
            return Reply::Null;
        };
        let before = hold.write + hold.read;
        match call.how {
            How::All => (hold.write, hold.read) = (0, 0),
            How::One(named) | How::LeaveAt(_, named) => {
                let mode = match named {
                    Some(mode) => mode,
                    None if hold.write > 0 && hold.read > 0 => return Reply::NameTheMode,
                    None if hold.write > 0 => Mode::Write,
                    None => Mode::Read,
                };
                let count = hold.count(mode);
                if *count == 0 {
                    return Reply::Null;
                }
                *count = match call.how {
                    How::LeaveAt(most, _) => (*count).min(u64::from(most)),
                    _ => *count - 1,
                };
            }
        }
        let left = hold.write + hold.read;
        self.holds.retain(|hold| hold.write + hold.read > 0);
        Reply::Left(left, left < before)
    }

    /// "Transfers the whole hold, with its modes and counts as they are, to another name, with a new token and a lease of
    /// exactly `lease` from now." `held` counts from the pass, and the connection is the one that sent it.
    fn pass(&mut self, key: usize, now: u64, wall: u64, call: &Call) -> Reply {
        let Call {
            owner, new_owner, ..
        } = call;
        let held = self.find_mut(key, owner, call.token);
        if held.is_none_or(|hold| hold.revoked) {
            return Reply::Null;
        }
        if self.find(key, new_owner).is_some() {
            return Reply::AlreadyHeld;
        }
        let Some(new_token) = self.next_token(wall, None) else {
            return Reply::OutOfTokens;
        };
        if let Some(hold) = self.find_mut(key, owner, call.token) {
            hold.owner.clone_from(new_owner);
            hold.token = new_token;
            hold.ends = now + call.lease;
            hold.since = now;
            hold.client = call.client;
        }
        Reply::Passed(new_token)
    }

    fn fence(&mut self, key: usize, owner: &[u8], token: u64, wall: u64) -> Reply {
        let bound = self.bound(wall);
        if token > bound {
            return Reply::TokenTooHigh { bound };
        }
        let Some(hold) = self.find_mut(key, owner, None) else {
            return Reply::Null;
        };
        hold.token = hold.token.max(token);
        let held = hold.token;
        self.last = self.last.max(token);
        Reply::Token(held)
    }
}
