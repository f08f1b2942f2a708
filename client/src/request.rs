//! The commands, a function for each, and what their replies mean.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::belief::Grant;
use crate::error::{Error, Failed};
use crate::link::Reply;
use crate::name::{Bytes, Mode, Owner};
use crate::time::Lease;
use crate::token::Token;

/// How long what arrives late from a name that has left has no effect, in milliseconds.
const AWAY: u64 = 60_000;
/// Room for the arguments of most commands, and for the bytes of those that are no names.
const ARGUMENTS: usize = 16;
const BYTES: usize = 160;

/// What an acquisition asks for, and how its hold is kept.
#[derive(Clone)]
pub(crate) struct Terms {
    /// At least one.
    pub(crate) keys: Arc<[Bytes]>,
    /// Whose names are used.
    pub(crate) owner: Owner,
    pub(crate) mode: Mode,
    pub(crate) lease: Lease,
    /// How long it may wait: not at all if that is zero, without limit if `None`.
    pub(crate) wait: Option<Duration>,
    pub(crate) renews: bool,
    pub(crate) max_hold: Option<Duration>,
    /// How many permits.
    pub(crate) count: u32,
    /// Of how many.
    pub(crate) of: Option<u32>,
}

fn command(verb: &str, key: &Bytes, owner: &Bytes) -> Cmd {
    let mut command = empty(verb, key.len() + owner.len());
    command.arg(&**key).arg(&**owner);
    command
}

/// A command that grows without copying.
fn empty(verb: &str, names: usize) -> Cmd {
    let mut command = Cmd::with_capacity(ARGUMENTS, names + BYTES);
    command.arg(verb);
    command
}

/// Takes the lock, or the locks.
pub(crate) fn acquire(owner: &Bytes, terms: &Terms) -> Cmd {
    let lease = terms.lease.as_millis();
    let [key] = &*terms.keys else {
        let names: usize = terms.keys.iter().map(|key| key.len()).sum();
        let mut acquire = empty("LOCK.MACQUIRE", owner.len() + names);
        acquire.arg(&**owner).arg(lease).arg(terms.keys.len());
        for key in &*terms.keys {
            acquire.arg(&**key);
        }
        return acquire;
    };
    let (verb, count, of) = match terms.mode {
        Mode::Write => ("LOCK.ACQUIRE", 1, None),
        Mode::Read => ("LOCK.RLOCK", terms.count, terms.of),
    };
    let mut acquire = command(verb, key, owner);
    acquire.arg(lease).arg("HOLDS").arg(count);
    if let Some(of) = of {
        acquire.arg("LIMIT").arg(of);
    }
    acquire
}

/// Has a request wait for so many milliseconds (0: without limit) for a letter in this box.
pub(crate) fn waiting(mut request: Cmd, wait: u64, mailbox: &Bytes) -> Cmd {
    let wait = request.arg("WAIT").arg(wait);
    wait.arg("MAIL").arg(&**mailbox);
    request
}

/// Has a request concern only a hold with this token.
pub(crate) fn by(token: Token, mut request: Cmd) -> Cmd {
    request.arg("TOKEN").arg(token.get());
    request
}

/// Lowers how often a hold writes.
pub(crate) fn writes(key: &Bytes, owner: &Bytes, times: u32) -> Cmd {
    let mut lower = command("LOCK.RELEASE", key, owner);
    lower.arg("WRITE").arg("HOLDS").arg(times);
    lower
}

/// Ends a hold in both modes.
pub(crate) fn release(key: &Bytes, owner: &Bytes) -> Cmd {
    let mut release = command("LOCK.RELEASE", key, owner);
    release.arg("ALL");
    release
}

/// Extends a hold.
pub(crate) fn renew(key: &Bytes, owner: &Bytes, lease: Lease) -> Cmd {
    let mut renew = command("LOCK.RENEW", key, owner);
    renew.arg(lease.as_millis());
    renew
}

/// Transfers a hold to another name, with a new token.
pub(crate) fn pass(key: &Bytes, owner: &Bytes, new_owner: &Bytes, lease: Lease) -> Cmd {
    let mut pass = command("LOCK.PASS", key, owner);
    pass.arg(&**new_owner).arg(lease.as_millis());
    pass
}

/// Removes whatever a name has or wants.
pub(crate) fn leave(key: &Bytes, owner: &Bytes) -> Cmd {
    command("LOCK.LEAVE", key, owner)
}

/// Removes whatever a name has or wants, also by requests that are still on their way.
pub(crate) fn leave_for_good(key: &Bytes, owner: &Bytes) -> Cmd {
    let mut leave = leave(key, owner);
    leave.arg("FOR").arg(AWAY);
    leave
}

/// Raises the token of a hold.
pub(crate) fn fence(key: &Bytes, owner: &Bytes, token: Token) -> Cmd {
    let mut fence = command("LOCK.FENCE", key, owner);
    fence.arg(token.get());
    fence
}

/// Runs another command if the lock is held by this token.
pub(crate) fn guard(key: &Bytes, owner: &Bytes, token: Token, inner: &Cmd) -> Cmd {
    let mut guard = command("LOCK.GUARD", key, owner);
    guard.arg(token.get());
    for arg in inner.args_iter() {
        match arg {
            redis::Arg::Simple(arg) => guard.arg(arg),
            // A cursor: a new scan begins at 0.
            _ => guard.arg(0),
        };
    }
    guard
}

/// Ends an owner's hold with its current lease.
pub(crate) fn revoke(key: &Bytes, owner: &Bytes) -> Cmd {
    command("LOCK.REVOKE", key, owner)
}

/// Shows who holds a lock, and who waits for it.
pub(crate) fn info(key: &[u8]) -> Cmd {
    let mut info = redis::cmd("LOCK.INFO");
    info.arg(key);
    info
}

/// Shows the locks with the most waiters.
pub(crate) fn top(count: usize) -> Cmd {
    let mut top = redis::cmd("LOCK.TOP");
    top.arg("COUNT").arg(count.clamp(1, i32::MAX as usize));
    top
}

/// Reads the box's number in the reply to a request that was queued; `None` in any other reply.
pub(crate) fn queued(value: &Value) -> Option<i64> {
    match value {
        Value::Array(queued) => match queued[..] {
            [_, Value::Int(since)] => Some(since),
            _ => None,
        },
        _ => None,
    }
}

/// Reads a reply that is the token of a hold with this lease, or null.
pub(crate) fn granted(reply: Reply, lease: Lease) -> Result<Grant, Failed> {
    let token = number(reply.value).map(Token::new)?;
    Ok(Grant::new(token, reply.sent, lease))
}

/// Reads the reply to a renewal of a hold with this token. A server that has it by a lower one does not have what was granted
/// since: an upgrade that a failover has lost.
pub(crate) fn renewed(reply: Reply, lease: Lease, token: Token) -> Result<Grant, Failed> {
    let grant = granted(reply, lease)?;
    (grant.token >= token)
        .then_some(grant)
        .ok_or(Failed::Denied)
}

/// Reads a reply that is a number, or null.
pub(crate) fn number(value: Value) -> Result<u64, Failed> {
    match value {
        Value::Int(number @ 0..) => Ok(number.unsigned_abs()),
        Value::Nil => Err(Failed::Denied),
        other => Err(Failed::Unknown(Error::unexpected(&other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::BootInstant;

    #[test]
    fn a_renewal_of_a_hold_with_a_lower_token_is_a_denial() {
        let renewed = |token| {
            let (value, sent) = (Value::Int(7), BootInstant::now());
            let lease = Lease::new(Duration::from_secs(1)).unwrap();
            renewed(Reply { value, sent }, lease, Token::new(token)).map(|grant| grant.token)
        };
        assert_eq!(renewed(7).ok(), Some(Token::new(7)));
        assert_eq!(renewed(6).ok(), Some(Token::new(7)), "upgraded meanwhile");
        assert!(matches!(renewed(8), Err(Failed::Denied)));
    }
}
