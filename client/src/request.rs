//! The commands, a function for each, and what their replies mean.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::error::{Error, Failed};
use crate::name::{Bytes, Mode};
use crate::time::Lease;
use crate::token::Token;

/// How long what arrives late from a name that has left has no effect, in milliseconds.
const AWAY: u64 = 60_000;

/// The keys and the owner of one acquisition.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    /// 1 to 16 keys.
    pub(crate) keys: Arc<[Bytes]>,
    pub(crate) owner: Bytes,
}

/// What an acquisition asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) mode: Mode,
    pub(crate) lease: Lease,
    /// How many permits of how many.
    pub(crate) permits: Option<Permits>,
}

/// A number of permits, of all that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Permits {
    pub(crate) count: u32,
    pub(crate) of: u32,
}

/// How a request waits: for so many milliseconds (0: without limit), for a letter in this box.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    pub(crate) wait: u64,
    pub(crate) mailbox: Bytes,
}

impl Queue {
    fn add_to(&self, command: &mut Cmd) {
        command
            .arg("WAIT")
            .arg(self.wait)
            .arg("MAIL")
            .arg(&*self.mailbox);
    }
}

fn command(verb: &str, key: &Bytes, owner: &Bytes) -> Cmd {
    let mut command = redis::cmd(verb);
    command.arg(&**key).arg(&**owner);
    command
}

/// Takes the lock, or the locks.
pub(crate) fn acquire(name: &Name, terms: Terms, queue: Option<&Queue>) -> Cmd {
    let Terms {
        mode,
        lease,
        permits,
    } = terms;
    let mut acquire = match &*name.keys {
        [key] => {
            let verb = if mode == Mode::Write {
                "LOCK.ACQUIRE"
            } else {
                "LOCK.RLOCK"
            };
            let mut acquire = command(verb, key, &name.owner);
            acquire
                .arg(lease.as_millis())
                .arg("HOLDS")
                .arg(permits.map_or(1, |permits| permits.count));
            if let Some(permits) = permits {
                acquire.arg("LIMIT").arg(permits.of);
            }
            acquire
        }
        keys => {
            let mut acquire = redis::cmd("LOCK.MACQUIRE");
            acquire
                .arg(&*name.owner)
                .arg(lease.as_millis())
                .arg(keys.len());
            for key in keys {
                acquire.arg(&**key);
            }
            acquire
        }
    };
    if let Some(queue) = queue {
        queue.add_to(&mut acquire);
    }
    acquire
}

/// Adds a mode to a hold: the hold is made a writer's, or a reader's with these permits.
pub(crate) fn add_mode(
    key: &Bytes,
    owner: &Bytes,
    terms: Terms,
    token: Token,
    queue: Option<&Queue>,
) -> Cmd {
    let verb = if terms.mode == Mode::Write {
        "LOCK.WLOCK"
    } else {
        "LOCK.RLOCK"
    };
    let mut add = command(verb, key, owner);
    let count = terms.permits.map_or(1, |permits| permits.count);
    add.arg(terms.lease.as_millis())
        .arg("HOLDS")
        .arg(count)
        .arg("TOKEN")
        .arg(token.get());
    if let Some(queue) = queue {
        queue.add_to(&mut add);
    }
    add
}

/// Ends the writing part of a hold that reads, too.
pub(crate) fn end_writing(key: &Bytes, owner: &Bytes, token: Token) -> Cmd {
    let mut end = command("LOCK.RELEASE", key, owner);
    end.arg("WRITE")
        .arg("HOLDS")
        .arg(0)
        .arg("TOKEN")
        .arg(token.get());
    end
}

/// Lowers the writes of a hold to one: this crate's holds write once.
pub(crate) fn write_once(key: &Bytes, owner: &Bytes, token: Token) -> Cmd {
    let mut lower = command("LOCK.RELEASE", key, owner);
    lower
        .arg("WRITE")
        .arg("HOLDS")
        .arg(1)
        .arg("TOKEN")
        .arg(token.get());
    lower
}

/// Extends a hold; of any token, if none is named.
pub(crate) fn renew(key: &Bytes, owner: &Bytes, lease: Lease, token: Option<Token>) -> Cmd {
    let mut renew = command("LOCK.RENEW", key, owner);
    renew.arg(lease.as_millis());
    if let Some(token) = token {
        renew.arg("TOKEN").arg(token.get());
    }
    renew
}

/// Ends a hold in both modes.
pub(crate) fn release(key: &Bytes, owner: &Bytes, token: Token) -> Cmd {
    let mut release = command("LOCK.RELEASE", key, owner);
    release.arg("ALL").arg("TOKEN").arg(token.get());
    release
}

/// Whether a request of the name may still be on its way when it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Late {
    Nothing,
    Requests,
}

/// Removes whatever a name has or wants.
pub(crate) fn leave(key: &Bytes, owner: &Bytes, late: Late) -> Cmd {
    let mut leave = command("LOCK.LEAVE", key, owner);
    if late == Late::Requests {
        leave.arg("FOR").arg(AWAY);
    }
    leave
}

/// Transfers a hold to another name, with a new token.
pub(crate) fn pass(
    key: &Bytes,
    owner: &Bytes,
    new_owner: &[u8],
    lease: Lease,
    token: Token,
) -> Cmd {
    let mut pass = command("LOCK.PASS", key, owner);
    pass.arg(new_owner)
        .arg(lease.as_millis())
        .arg("TOKEN")
        .arg(token.get());
    pass
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
        if let redis::Arg::Simple(arg) = arg {
            guard.arg(arg);
        }
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

/// The answer to a request for a lock.
pub(crate) enum Answer {
    Granted(Token),
    /// It waits in the box with this number.
    Queued(i64),
}

/// Reads the reply to [`acquire`] or [`add_mode`].
pub(crate) fn answer(value: Value) -> Result<Answer, Failed> {
    match &value {
        Value::Array(queued) => match queued[..] {
            [_, Value::Int(since)] => Ok(Answer::Queued(since)),
            _ => Err(Failed::Unknown(Error::unexpected(&value))),
        },
        _ => token(value).map(Answer::Granted),
    }
}

/// Reads a reply that is a token, or null.
pub(crate) fn token(value: Value) -> Result<Token, Failed> {
    match value {
        Value::Int(token @ 1..) => Ok(Token::new(token.unsigned_abs())),
        Value::Nil => Err(Failed::Denied),
        other => Err(Failed::Unknown(Error::unexpected(&other))),
    }
}

/// Reads a reply that is a number, or null.
pub(crate) fn number(value: Value) -> Result<u64, Failed> {
    match value {
        Value::Int(number @ 0..) => Ok(number.unsigned_abs()),
        Value::Nil => Err(Failed::Denied),
        other => Err(Failed::Unknown(Error::unexpected(&other))),
    }
}

/// Reads a reply that is a time in milliseconds, or null.
pub(crate) fn time(value: Value) -> Result<Option<Duration>, Error> {
    match number(value) {
        Ok(ms) => Ok(Some(Duration::from_millis(ms))),
        Err(Failed::Denied) => Ok(None),
        Err(Failed::Refused(error) | Failed::Unknown(error)) => Err(error),
    }
}
