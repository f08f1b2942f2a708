//! An open connection: a stream of bytes, or a connection of the `redis` crate, whose values become replies here.

use std::pin::Pin;

use redis::aio::{AsyncStream, ConnectionLike, MultiplexedConnection};
use redis::{Pipeline, RedisError, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use crate::value::ConnectionError;
use crate::wire::Reply;
use crate::wire::reply::parse;

/// An open connection.
pub(super) enum Link {
    Stream(Stream),
    /// Of the `redis` crate: TLS, or supplied.
    Crate(MultiplexedConnection),
}

type Stream = Pin<Box<dyn AsyncStream + Send>>;

impl Link {
    pub(super) async fn ask(&mut self, commands: &Pipeline) -> Result<Vec<Reply>, ConnectionError> {
        let packed = commands.get_packed_pipeline();
        let stream = match self {
            Link::Stream(stream) => stream,
            Link::Crate(connection) => return ask(connection.clone(), packed).await,
        };
        // A server that turns a client away says why, and closes: the reason may be there to read though writing fails.
        let written = stream.write_all(&packed).await;
        let (mut input, mut replies) = (Vec::new(), Vec::new());
        while replies.len() < commands.len() {
            let received = receive(stream, &mut input, &mut replies).await;
            match (received, replies.first()) {
                (Err(_), Some(Reply::Error(line))) => return Err(turned_away(line)),
                (received, _) => received?,
            }
        }
        written?;
        Ok(replies)
    }
}

/// Why a server closes a connection instead of serving it.
fn turned_away(line: &str) -> ConnectionError {
    match line.starts_with("DENIED") {
        true => ConnectionError::denied(line),
        false => ConnectionError::new(line),
    }
}

/// Reads what there is, and takes the replies that are complete.
pub(super) async fn receive(
    stream: &mut (impl AsyncRead + Unpin),
    input: &mut Vec<u8>,
    replies: &mut Vec<Reply>,
) -> Result<(), ConnectionError> {
    if stream.read_buf(input).await? == 0 {
        return Err(ConnectionError::new("the server closed the connection"));
    }
    let mut used = 0;
    let malformed = |_| ConnectionError::new("the server does not speak RESP2");
    while let Some((reply, length)) = parse(&input[used..]).map_err(malformed)? {
        replies.push(reply);
        used += length;
    }
    input.drain(..used);
    Ok(())
}

/// Sends commands, as they are on the wire, over a connection of the `redis` crate.
pub(super) async fn ask(
    mut connection: MultiplexedConnection,
    commands: Vec<u8>,
) -> Result<Vec<Reply>, ConnectionError> {
    let (mut pipeline, mut rest) = (Pipeline::new(), commands.as_slice());
    while let Some(count) = length(&mut rest, b'*') {
        let mut command = redis::Cmd::with_capacity(count, rest.len());
        for _ in 0..count {
            if let Some(length) = length(&mut rest, b'$') {
                command.arg(&rest[..length]);
                rest = &rest[length + 2..];
            }
        }
        pipeline.add_command(command);
    }
    let count = pipeline.len();
    let replies = connection.req_packed_commands(&pipeline, 0, count).await;
    let replies = replies.map_err(connection_error)?;
    Ok(replies.into_iter().map(reply).collect())
}

/// Takes off the length that a command of ours, or an argument of one, begins with.
fn length(rest: &mut &[u8], kind: u8) -> Option<usize> {
    let end = rest.iter().position(|it| *it == b'\r')?;
    let digits = rest[..end].strip_prefix(&[kind])?;
    let length = digits
        .iter()
        .fold(0, |length, digit| 10 * length + usize::from(digit - b'0'));
    *rest = &rest[end + 2..];
    Some(length)
}

/// As RESP2 would have it.
fn reply(value: Value) -> Reply {
    match value {
        Value::Nil => Reply::Nil,
        Value::Int(n) => Reply::Int(n),
        Value::Boolean(is) => Reply::Int(i64::from(is)),
        Value::BulkString(text) => Reply::Text(text),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => {
            Reply::Text(text.into_bytes())
        }
        Value::Okay => Reply::Text(b"OK".to_vec()),
        Value::Double(n) => Reply::Text(n.to_string().into_bytes()),
        Value::Array(items) | Value::Set(items) => {
            Reply::Array(items.into_iter().map(reply).collect())
        }
        Value::Map(pairs) => {
            let flat = pairs.into_iter().flat_map(|(name, value)| [name, value]);
            Reply::Array(flat.map(reply).collect())
        }
        Value::ServerError(error) => {
            let details = error.details().unwrap_or_default();
            Reply::Error(format!("{} {details}", error.code()).trim_end().to_owned())
        }
        other => Reply::Text(format!("{other:?}").into_bytes()),
    }
}

pub(super) fn connection_error(error: RedisError) -> ConnectionError {
    if error.kind() == redis::ErrorKind::AuthenticationFailed {
        return ConnectionError::denied(error.to_string());
    }
    match error.is_timeout() {
        true => ConnectionError::timed_out(error.to_string()),
        false => ConnectionError::new(error.to_string()),
    }
}
