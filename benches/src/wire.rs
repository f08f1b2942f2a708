//! Load on a server: many connections, each with a pending batch of commands.
//!
//! The commands are encoded before the clock starts, so that the measurement contains little of the client's own work.
//! The beginning of every reply is checked: otherwise a load that fails would look fast.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use mortise_harness::Server;

/// Connections of a load, and commands in a batch: `redis-benchmark -c 50 -P 16`.
pub(crate) const CONNECTIONS: usize = 50;
pub(crate) const PIPELINE: usize = 16;

/// Commands that are sent in one write; their replies are then awaited together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    commands: usize,
    /// The expected beginning of each reply.
    reply: &'static str,
}

impl Batch {
    /// An empty batch whose replies will all begin with `reply`.
    pub(crate) fn expecting(reply: &'static str) -> Batch {
        Batch {
            reply,
            ..Batch::default()
        }
    }

    pub(crate) fn add(&mut self, args: &[&[u8]]) {
        self.commands += 1;
        write!(self.bytes, "*{}\r\n", args.len()).expect("a Vec takes all");
        for arg in args {
            write!(self.bytes, "${}\r\n", arg.len()).expect("a Vec takes all");
            self.bytes.extend_from_slice(arg);
            self.bytes.extend_from_slice(b"\r\n");
        }
    }
}

/// Batches of [`PIPELINE`] commands, one for each of `count` numbers from `first` on.
pub(crate) fn batches(
    first: usize,
    count: usize,
    reply: &'static str,
    mut add: impl FnMut(&mut Batch, usize),
) -> Vec<Batch> {
    let numbers: Vec<usize> = (first..first + count).collect();
    let batches = numbers.chunks(PIPELINE).map(|numbers| {
        let mut batch = Batch::expecting(reply);
        for number in numbers {
            add(&mut batch, *number);
        }
        batch
    });
    batches.collect()
}

/// Puts `first` and `then` in turns, so that each connection sends a batch of one and next the same batch of the other.
pub(crate) fn in_turn(first: Vec<Batch>, then: Vec<Batch>) -> Vec<Batch> {
    // Otherwise the last turn would use the wrong connections, and overtake itself.
    assert!(
        first.len() == then.len() && first.len().is_multiple_of(CONNECTIONS),
        "{} and {} batches do not fill {CONNECTIONS} connections",
        first.len(),
        then.len()
    );
    let (mut first, mut then) = (first.into_iter(), then.into_iter());
    let mut batches = Vec::new();
    while first.len() > 0 {
        batches.extend(first.by_ref().take(CONNECTIONS));
        batches.extend(then.by_ref().take(CONNECTIONS));
    }
    batches
}

/// [`CONNECTIONS`] connections to a server.
#[derive(Debug)]
pub(crate) struct Clients {
    streams: Vec<TcpStream>,
    buffer: Vec<u8>,
}

impl Clients {
    pub(crate) fn connect(server: &Server) -> Clients {
        let streams = (0..CONNECTIONS).map(|_| {
            let stream = TcpStream::connect(server.addr()).expect("the server listens");
            stream
                .set_nodelay(true)
                .expect("a connected socket takes options");
            stream
        });
        Clients {
            streams: streams.collect(),
            buffer: Vec::new(),
        }
    }

    /// Uses database `db` from here on.
    pub(crate) fn select(&mut self, db: usize) {
        let db = db.to_string();
        let select = || {
            let mut batch = Batch::expecting("+OK");
            batch.add(&[b"SELECT", db.as_bytes()]);
            batch
        };
        self.run(&(0..CONNECTIONS).map(|_| select()).collect::<Vec<_>>());
    }

    /// Sends the n-th batch over connection n modulo their number, as soon as the batch before it on that connection has its
    /// replies. Returns how long it all took.
    pub(crate) fn run(&mut self, batches: &[Batch]) -> Duration {
        let began = Instant::now();
        for turn in 0..batches.len() + CONNECTIONS {
            let stream = &mut self.streams[turn % CONNECTIONS];
            if let Some(answered) = turn
                .checked_sub(CONNECTIONS)
                .and_then(|turn| batches.get(turn))
            {
                await_replies(stream, &mut self.buffer, answered);
            }
            if let Some(next) = batches.get(turn) {
                stream.write_all(&next.bytes).expect("the server reads");
            }
        }
        began.elapsed()
    }
}

fn await_replies(stream: &mut TcpStream, buffer: &mut Vec<u8>, batch: &Batch) {
    buffer.clear();
    let (mut at, mut left) = (0, batch.commands);
    while left > 0 {
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk).expect("the server answers");
        assert!(read > 0, "the server has closed the connection");
        buffer.extend_from_slice(&chunk[..read]);
        while let Some(len) = reply_len(&buffer[at..]) {
            let reply = &buffer[at..at + len];
            assert!(
                reply.starts_with(batch.reply.as_bytes()),
                "expected a reply like {:?}, got \"{}\"",
                batch.reply,
                reply.escape_ascii()
            );
            (at, left) = (at + len, left - 1);
        }
    }
}

/// The length of the reply that `bytes` begin with, if it is complete. Knows lines and bulk strings.
fn reply_len(bytes: &[u8]) -> Option<usize> {
    let line = bytes.iter().position(|byte| *byte == b'\n')? + 1;
    let bulk = match bytes {
        [b'$', b'-', ..] => None,
        [b'$', rest @ ..] => Some(&rest[..line - 3]),
        _ => None,
    };
    let Some(len) = bulk else { return Some(line) };
    let len: usize = str::from_utf8(len)
        .ok()
        .and_then(|len| len.parse().ok())
        .expect("a length");
    let whole = line + len + 2;
    (whole <= bytes.len()).then_some(whole)
}
