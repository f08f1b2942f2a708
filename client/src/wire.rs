//! The wire contract: commands as they are sent, replies as they are understood. Nothing here waits.

use redis::{Cmd, RedisError, Value};

use crate::error::Error;
use crate::lease::Lease;
use crate::mode::Mode;
use crate::token::Token;

/// The one command without a key.
pub(crate) const TOP: &str = "LOCK.TOP";

/// How long an acquire may wait in the server's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Not at all.
    No,
    /// Up to so many milliseconds; 0 is without limit, as on the wire.
    Millis(u64),
}

/// `LOCK.ACQUIRE` or `LOCK.RLOCK`, leaving the mode's count at `holds` however often it is sent.
pub(crate) fn acquire(
    (key, owner): (&[u8], &[u8]),
    (mode, lease): (Mode, Lease),
    holds: u32,
    queue: Queue,
    fence: Option<Token>,
) -> Cmd {
    let mut cmd = redis::cmd(mode.command());
    cmd.arg(key).arg(owner).arg(lease.as_millis());
    cmd.arg("HOLDS").arg(holds);
    if let Queue::Millis(ms) = queue {
        cmd.arg("WAIT").arg(ms);
    }
    if let Some(token) = fence {
        cmd.arg("FENCE").arg(token.get());
    }
    cmd
}

/// `LOCK.RELEASE` of one mode down to `holds`, only of the hold that has `token` where it is known.
pub(crate) fn release(
    (key, owner): (&[u8], &[u8]),
    mode: Mode,
    holds: u32,
    token: Option<Token>,
) -> Cmd {
    let mut cmd = redis::cmd("LOCK.RELEASE");
    cmd.arg(key).arg(owner).arg(mode.option());
    cmd.arg("HOLDS").arg(holds);
    if let Some(token) = token {
        cmd.arg("TOKEN").arg(token.get());
    }
    cmd
}

/// `LOCK.RELEASE` of a whole hold, only of the one that has `token` where it is known.
pub(crate) fn release_all((key, owner): (&[u8], &[u8]), token: Option<Token>) -> Cmd {
    let mut cmd = redis::cmd("LOCK.RELEASE");
    cmd.arg(key).arg(owner).arg("ALL");
    if let Some(token) = token {
        cmd.arg("TOKEN").arg(token.get());
    }
    cmd
}

/// `LOCK.RENEW`, only of the hold that has `token` where it is known.
pub(crate) fn renew((key, owner): (&[u8], &[u8]), lease: Lease, token: Option<Token>) -> Cmd {
    let mut cmd = redis::cmd("LOCK.RENEW");
    cmd.arg(key).arg(owner).arg(lease.as_millis());
    if let Some(token) = token {
        cmd.arg("TOKEN").arg(token.get());
    }
    cmd
}

/// `LOCK.FENCE`: raises a hold's token.
pub(crate) fn fence((key, owner): (&[u8], &[u8]), token: Token) -> Cmd {
    let mut cmd = redis::cmd("LOCK.FENCE");
    cmd.arg(key).arg(owner).arg(token.get());
    cmd
}

/// The key that a command is about, if it is about one: its first argument.
pub(crate) fn key(cmd: &Cmd) -> Option<&[u8]> {
    let mut args = cmd.args_iter().map(|arg| match arg {
        redis::Arg::Simple(bytes) => Some(bytes),
        _ => None,
    });
    args.next()?.filter(|name| *name != TOP.as_bytes())?;
    args.next()?
}

/// The integer of a reply, or `None` for null.
pub(crate) fn integer(
    reply: Result<Value, RedisError>,
    server: &str,
) -> Result<Option<u64>, Error> {
    match value(reply, server)? {
        Value::Nil => Ok(None),
        Value::Int(n) if n >= 0 => Ok(Some(n.unsigned_abs())),
        other => Err(unexpected(&other)),
    }
}

/// The token of a reply, or `None` for null.
pub(crate) fn token(
    reply: Result<Value, RedisError>,
    server: &str,
) -> Result<Option<Token>, Error> {
    Ok(integer(reply, server)?.map(Token::new))
}

/// A reply with its errors sorted.
pub(crate) fn value(reply: Result<Value, RedisError>, server: &str) -> Result<Value, Error> {
    match reply {
        Ok(Value::ServerError(error)) => {
            let line = match error.details() {
                Some(details) => format!("{} {details}", error.code()),
                None => error.code().to_owned(),
            };
            Err(refusal(line, server))
        }
        Ok(value) => Ok(value),
        Err(error) => Err(match (error.code(), error.detail()) {
            (Some(code), Some(detail)) => refusal(format!("{code} {detail}"), server),
            (Some(code), None) => refusal(code.to_owned(), server),
            (None, _) => Error::Connection {
                server: server.to_owned(),
                error,
            },
        }),
    }
}

pub(crate) fn unexpected(value: &Value) -> Error {
    Error::Refused(format!("an unexpected reply: {value:?}"))
}

fn refusal(line: String, server: &str) -> Error {
    if line.starts_with("DEADLOCK") {
        return Error::Deadlock(line);
    }
    let lower = line.to_ascii_lowercase();
    if lower.contains("unknown command") && lower.contains("lock.") {
        return Error::NoModule {
            server: server.to_owned(),
        };
    }
    Error::Refused(line)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn text(cmd: &Cmd) -> String {
        cmd.args_iter()
            .map(|arg| match arg {
                redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                _ => "?".to_owned(),
            })
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn every_command_says_what_it_means_so_that_sending_it_twice_changes_nothing() {
        let (who, lease) = (
            (b"k".as_slice(), b"o".as_slice()),
            Lease::new(Duration::from_secs(1)).unwrap(),
        );
        let token = Some(Token::new(7));
        assert_eq!(key(&renew(who, lease, token)), Some(who.0));
        assert_eq!(key(&crate::info::top(1)), None);
        assert_eq!(
            text(&acquire(who, (Mode::Write, lease), 1, Queue::No, None)),
            "LOCK.ACQUIRE k o 1000 HOLDS 1"
        );
        assert_eq!(
            text(&acquire(
                who,
                (Mode::Read, lease),
                2,
                Queue::Millis(0),
                token
            )),
            "LOCK.RLOCK k o 1000 HOLDS 2 WAIT 0 FENCE 7"
        );
        assert_eq!(
            text(&release(who, Mode::Write, 0, token)),
            "LOCK.RELEASE k o WRITE HOLDS 0 TOKEN 7"
        );
        assert_eq!(
            text(&release_all(who, token)),
            "LOCK.RELEASE k o ALL TOKEN 7"
        );
        assert_eq!(
            text(&renew(who, lease, token)),
            "LOCK.RENEW k o 1000 TOKEN 7"
        );
    }
}
