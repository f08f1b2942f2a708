//! Replies: as they come over the wire (RESP2), and what they mean.

use std::fmt;
use std::str::FromStr;

use crate::value::{ConnectionError, Error, Token};

/// What a server has answered. Maps are arrays of names and values in turn.
///
/// ```no_run
/// # async fn example(client: mortise_client::Client, guard: mortise_client::Guard) -> Result<(), mortise_client::Error> {
/// use mortise_client::Reply;
///
/// let reply = client.guarded(&guard).run(["GET", "{stock:42}:count"]).await?;
/// if let Reply::Text(count) = reply {
///     println!("{}", String::from_utf8_lossy(&count));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// Null.
    Nil,
    /// An integer.
    Int(i64),
    /// A string, simple or bulk.
    Text(Vec<u8>),
    /// An array.
    Array(Vec<Reply>),
    /// An error line inside of an array; elsewhere it is an [`Error`].
    Error(String),
}

/// Why there is no reply.
#[derive(Debug, Clone)]
pub(crate) enum NoReply {
    /// The request never left: the server was not reached.
    NotSent(ConnectionError),
    /// The outcome is unknown.
    Unknown(ConnectionError),
    /// The request waits, but the server refuses LOCK.MAIL with this error. Whether the request is granted later is unknown.
    NoLetters(String),
    /// The runtime that moves the bytes is gone. Whether it was sent is not known.
    RuntimeGone,
    /// The client was closed meanwhile.
    Closed,
    /// This process is a fork of the one whose connection it is. It was not sent.
    Forked,
}

/// A reply, or why there is none.
pub(crate) type Answer = Result<Reply, NoReply>;

impl NoReply {
    /// The error for the caller.
    pub(crate) fn error(self, server: &str) -> Error {
        match self {
            NoReply::NotSent(error) | NoReply::Unknown(error) => Error::Connection {
                server: server.to_owned(),
                error,
            },
            NoReply::NoLetters(line) => refusal(line, server),
            NoReply::RuntimeGone => Error::RuntimeGone,
            NoReply::Closed => Error::Closed,
            NoReply::Forked => Error::Forked,
        }
    }
}

/// The reply of a server of this name, or the error that its answer is.
pub(crate) fn checked(answer: Answer, server: &str) -> Result<Reply, Error> {
    match answer {
        Ok(Reply::Error(line)) => Err(refusal(line, server)),
        Ok(reply) => Ok(reply),
        Err(reason) => Err(reason.error(server)),
    }
}

/// The token of an answer, or `None` where nothing is there.
pub(crate) fn token(reply: Reply) -> Result<Option<Token>, Error> {
    match reply {
        Reply::Nil | Reply::Int(0) => Ok(None),
        Reply::Int(n) if n > 0 => Ok(Some(Token::new(n.unsigned_abs()))),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn unexpected(reply: &Reply) -> Error {
    Error::Refused {
        code: "ERR".to_owned(),
        message: format!("an unexpected reply: {reply:?}"),
    }
}

/// The error of an error line.
pub(crate) fn refusal(line: String, server: &str) -> Error {
    let (code, message) = line.split_once(' ').unwrap_or((&line, ""));
    if code == "DEADLOCK" {
        return Error::Deadlock(message.to_owned());
    }
    let lower = message.to_ascii_lowercase();
    if lower.contains("unknown command") && lower.contains("lock.") {
        return Error::NoModule {
            server: server.to_owned(),
        };
    }
    Error::Refused {
        code: code.to_owned(),
        message: message.to_owned(),
    }
}

/// What the server sends is no RESP2.
#[derive(Debug)]
pub(crate) struct Malformed;

/// Why no reply can be read.
enum Unread {
    /// The rest of it has not arrived yet.
    Incomplete,
    Malformed,
}

impl From<Malformed> for Unread {
    fn from(_: Malformed) -> Unread {
        Unread::Malformed
    }
}

/// No reply to a command of this crate is nested deeper.
const DEEPEST: u32 = 32;

/// The first reply in `bytes` and how many of them it takes; `None` where it has not come in full.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Reply, usize)>, Malformed> {
    let mut rest = bytes;
    match read(&mut rest, DEEPEST) {
        Ok(reply) => Ok(Some((reply, bytes.len() - rest.len()))),
        Err(Unread::Incomplete) => Ok(None),
        Err(Unread::Malformed) => Err(Malformed),
    }
}

/// Takes a reply off.
fn read(rest: &mut &[u8], depth: u32) -> Result<Reply, Unread> {
    let end = rest.windows(2).position(|two| two == b"\r\n");
    let line = take(rest, end.ok_or(Unread::Incomplete)?)?;
    let (kind, line) = line.split_first().ok_or(Malformed)?;
    Ok(match (kind, line) {
        (b'$' | b'*', b"-1") => Reply::Nil,
        (b'+', text) => Reply::Text(text.to_vec()),
        (b'-', text) => Reply::Error(String::from_utf8_lossy(text).into_owned()),
        (b':', digits) => Reply::Int(number(digits)?),
        (b'$', digits) => Reply::Text(take(rest, number(digits)?)?.to_vec()),
        (b'*', digits) if depth > 0 => {
            let items = (0..number::<usize>(digits)?).map(|_| read(rest, depth - 1));
            Reply::Array(items.collect::<Result<_, _>>()?)
        }
        _ => return Err(Unread::Malformed),
    })
}

/// Takes so many bytes off, and the end of a line.
fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Unread> {
    let end = length.checked_add(2).ok_or(Malformed)?;
    let taken = rest.get(..end).ok_or(Unread::Incomplete)?;
    *rest = &rest[end..];
    Ok(&taken[..length])
}

fn number<T: FromStr>(digits: &[u8]) -> Result<T, Malformed> {
    let text = std::str::from_utf8(digits).map_err(|_| Malformed)?;
    text.parse().map_err(|_| Malformed)
}

/// Text is shown as text.
impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Nil => f.write_str("nil"),
            Reply::Int(n) => n.fmt(f),
            Reply::Text(text) => String::from_utf8_lossy(text).fmt(f),
            Reply::Array(items) => items.fmt(f),
            Reply::Error(line) => write!(f, "({line})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_parsed_once_it_is_complete() {
        let wire = b"*5\r\n:-3\r\n$2\r\n\r\n\r\n+OK\r\n*-1\r\n-ERR no\r\n";
        for end in 0..wire.len() {
            assert!(parse(&wire[..end]).unwrap().is_none(), "{end}");
        }
        let (reply, used) = parse(wire).unwrap().unwrap();
        let items = vec![
            Reply::Int(-3),
            Reply::Text(b"\r\n".to_vec()),
            Reply::Text(b"OK".to_vec()),
            Reply::Nil,
            Reply::Error("ERR no".to_owned()),
        ];
        assert_eq!((reply, used), (Reply::Array(items), wire.len()));
        let followed = [wire, &b":1\r\n"[..]].concat();
        assert_eq!(parse(&followed).unwrap().unwrap().1, wire.len());
    }

    #[test]
    fn invalid_replies_are_refused_without_a_panic() {
        for wire in [&b"\r\n"[..], b"?\r\n", b":x\r\n", b"$-2\r\n", b"*-2\r\n"] {
            assert!(parse(wire).is_err(), "{wire:?}");
        }
        let deep = b"*1\r\n".repeat(100_000);
        assert!(parse(&deep).is_err());
    }

    #[test]
    fn a_token_is_above_zero_and_nothing_is_nil_or_zero() {
        assert_eq!(token(Reply::Int(7)).unwrap(), Some(Token::new(7)));
        for nothing in [Reply::Nil, Reply::Int(0)] {
            assert_eq!(token(nothing).unwrap(), None);
        }
        for wrong in [Reply::Int(-7), Reply::Array(Vec::new())] {
            let error = token(wrong).unwrap_err();
            assert!(matches!(error, Error::Refused { .. }), "{error}");
        }
    }

    #[test]
    fn an_error_line_is_a_code_and_a_message() {
        let told = |line: &str| format!("{:?}", refusal(line.to_owned(), "here"));
        assert!(told("DEADLOCK a b").ends_with("a deadlock: a b"));
        assert!(told("ERR unknown command 'LOCK.ACQUIRE', with …").contains("loadmodule"));
        for other in ["ERR unknown command 'GETT'", "NOPERM to run 'lock.acquire'"] {
            assert!(!told(other).contains("loadmodule"), "{other}");
        }
        let refused = refusal("WRONGTYPE it is a list".to_owned(), "here");
        assert!(
            matches!(refused, Error::Refused { code, message } if code == "WRONGTYPE" && message == "it is a list")
        );
    }
}
