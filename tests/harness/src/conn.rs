//! A connection under the test's full control: it sends now and receives later, retries nothing, and hides nothing.
//!
//! Replies are read by the parser of the `redis` crate. The socket is our own because a test of blocking commands asks
//! "has it been answered yet?", and the crate's connection drops a reply that comes after a read has timed out.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use redis::{Cmd, Parser, RedisError, Value};

use crate::valgrind;
use crate::value::{error_line, int};

/// How long a reply may take before a test counts as hung.
const REPLY_LIMIT: Duration = Duration::from_secs(20);

/// The protocol a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2, where maps are flat arrays.
    Resp2,
    /// RESP3.
    Resp3,
}

/// A connection to a server.
///
/// Each command comes as a method that takes a slice of byte strings (`conn.cmd(&["GET", key])`) and as a macro that
/// mixes types (`cmd!(conn, "LOCK.ACQUIRE", key, owner, 1000)`). Where a method panics, the message names the command.
pub struct Conn {
    stream: Stream,
    parser: Parser,
    id: Option<i64>,
    /// The last command sent, for messages.
    last: String,
}

impl Conn {
    pub(crate) fn tcp(port: u16) -> io::Result<Conn> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Conn::over(Stream::Tcp(stream)))
    }

    /// A connection to the server that listens on `port` of 127.0.0.1, without a greeting: its id is unknown.
    ///
    /// # Errors
    /// If nothing listens there.
    pub fn to_port(port: u16) -> io::Result<Conn> {
        Conn::tcp(port)
    }

    pub(crate) fn unix(path: &Path) -> io::Result<Conn> {
        Ok(Conn::over(Stream::Unix(UnixStream::connect(path)?)))
    }

    fn over(stream: Stream) -> Conn {
        Conn {
            stream,
            parser: Parser::new(),
            id: None,
            last: String::new(),
        }
    }

    /// Logs in, agrees on the protocol and asks for the connection's id.
    pub(crate) fn greet(
        &mut self,
        protocol: Protocol,
        password: Option<&str>,
    ) -> Result<(), String> {
        if let Some(password) = password {
            self.try_cmd(&["AUTH", password])?;
        }
        if protocol == Protocol::Resp3 {
            self.try_cmd(&["HELLO", "3"])?;
        }
        // A user without the right to ask has no id here; see client_id().
        self.id = self.try_cmd(&["CLIENT", "ID"]).ok().map(|id| int(&id));
        Ok(())
    }

    /// Runs a command and returns its reply.
    ///
    /// # Panics
    /// If the reply is an error, or none comes within 20 seconds.
    #[track_caller]
    pub fn cmd<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        self.run(&to_cmd(args))
    }

    /// Runs a command and returns its reply, or the error line as it was on the wire
    /// (`WRONGTYPE Operation against a key …`).
    ///
    /// A connection that is closed instead of answered is an `Err` that begins with `connection closed`.
    ///
    /// # Panics
    /// If no reply comes within 20 seconds.
    #[track_caller]
    pub fn try_cmd<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Value, String> {
        self.try_run(&to_cmd(args))
    }

    /// Sends a command without waiting for its reply; [`Conn::recv`] brings it. Any number may be on their way.
    ///
    /// # Panics
    /// If the server has closed the connection.
    #[track_caller]
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        self.submit(&to_cmd(args));
    }

    /// The next reply, or in RESP3 the next push message.
    ///
    /// # Panics
    /// If it is an error, or nothing comes within 20 seconds.
    #[track_caller]
    pub fn recv(&mut self) -> Value {
        match self.try_recv() {
            Ok(value) => value,
            Err(error) => panic!("{}: {error}", self.last),
        }
    }

    /// The next reply, or its error line. Like [`Conn::try_cmd`] otherwise.
    ///
    /// # Panics
    /// If nothing comes within 20 seconds.
    #[track_caller]
    pub fn try_recv(&mut self) -> Result<Value, String> {
        match self.recv_within(valgrind::patience(REPLY_LIMIT)) {
            Some(reply) => reply,
            None => panic!("{}: no reply within {REPLY_LIMIT:?}", self.last),
        }
    }

    /// The next reply if it comes within `limit`, else `None`; it can still be received later.
    ///
    /// To show that a request waits, [`Server::await_blocked`](crate::Server::await_blocked) needs no pause at all.
    pub fn recv_within(&mut self, limit: Duration) -> Option<Result<Value, String>> {
        // The system reads a timeout of zero as none.
        let limit = limit.max(Duration::from_millis(1));
        if let Err(error) = self.stream.set_read_timeout(limit) {
            return Some(Err(format!("connection closed: {error}")));
        }
        match self.parser.parse_value(&mut self.stream) {
            Ok(value) => Some(match error_line(&value) {
                Some(line) => Err(line),
                None => Ok(value),
            }),
            Err(error) if error.is_timeout() => None,
            Err(error) => Some(Err(describe(&error))),
        }
    }

    /// The connection's `CLIENT ID`, read once, when it was opened.
    ///
    /// # Panics
    /// If the user was not allowed to ask.
    #[track_caller]
    pub fn client_id(&self) -> i64 {
        self.id
            .expect("the user of this connection may run CLIENT ID")
    }

    /// Runs a command built elsewhere; what [`cmd!`](crate::cmd!) calls. Like [`Conn::cmd`] otherwise.
    ///
    /// # Panics
    /// If the reply is an error, or none comes within 20 seconds.
    #[track_caller]
    pub fn run(&mut self, command: &Cmd) -> Value {
        self.submit(command);
        self.recv()
    }

    /// Runs a command built elsewhere; what [`try_cmd!`](crate::try_cmd!) calls. Like [`Conn::try_cmd`] otherwise.
    ///
    /// # Panics
    /// If no reply comes within 20 seconds.
    #[track_caller]
    pub fn try_run(&mut self, command: &Cmd) -> Result<Value, String> {
        self.last = command_line(command);
        match self.stream.write_all(&command.get_packed_command()) {
            Ok(()) => self.try_recv(),
            Err(error) => Err(format!("connection closed: {error}")),
        }
    }

    /// Sends a command built elsewhere; what [`send!`](crate::send!) calls.
    ///
    /// # Panics
    /// If the server has closed the connection.
    #[track_caller]
    pub fn submit(&mut self, command: &Cmd) {
        self.last = command_line(command);
        self.send_raw(&command.get_packed_command());
    }

    /// Sends commands in one write, so that the server takes them up in one turn of its event loop, and returns their
    /// replies. Like [`Conn::try_run`] otherwise.
    ///
    /// # Panics
    /// If a reply does not come within 20 seconds.
    #[track_caller]
    pub fn pipeline(&mut self, commands: &[Cmd]) -> Vec<Result<Value, String>> {
        let bytes: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
        self.last = commands
            .iter()
            .map(command_line)
            .collect::<Vec<_>>()
            .join("; ");
        self.send_raw(&bytes);
        commands.iter().map(|_| self.try_recv()).collect()
    }

    /// Sends a command; a closed connection fails when the reply is received.
    pub(crate) fn submit_or_lose(&mut self, command: &Cmd) {
        self.last = command_line(command);
        let _ = self.stream.write_all(&command.get_packed_command());
    }

    /// Like [`Conn::send_raw`], for a connection that the server may have closed.
    pub fn try_send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends bytes as they are, for input that no client would build.
    ///
    /// # Panics
    /// If the server has closed the connection.
    #[track_caller]
    pub fn send_raw(&mut self, bytes: &[u8]) {
        if let Err(error) = self.stream.write_all(bytes) {
            panic!("{}: connection closed: {error}", self.last);
        }
    }
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn")
            .field("stream", &self.stream)
            .field("id", &self.id)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn set_read_timeout(&self, limit: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(Some(limit)),
            Stream::Unix(stream) => stream.set_read_timeout(Some(limit)),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }
}

impl Drop for Stream {
    /// Ends the connection itself. A process that another test is just starting may have a copy of the socket, which would keep
    /// the connection open beyond this.
    fn drop(&mut self) {
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match self {
                Stream::Tcp(stream) => stream.read(buffer),
                Stream::Unix(stream) => stream.read(buffer),
            };
            // If the machine was stopped for a moment, waiting calls are interrupted.
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

fn to_cmd<A: AsRef<[u8]>>(args: &[A]) -> Cmd {
    let mut command = Cmd::new();
    for arg in args {
        command.arg(arg.as_ref());
    }
    command
}

/// The command as a person would type it, long arguments cut.
fn command_line(command: &Cmd) -> String {
    const LONGEST: usize = 60;
    let words = command.args_iter().map(|arg| match arg {
        redis::Arg::Simple(bytes) if bytes.len() > LONGEST => {
            format!(
                "{}… ({} bytes)",
                bytes[..LONGEST].escape_ascii(),
                bytes.len()
            )
        }
        redis::Arg::Simple(bytes) => bytes.escape_ascii().to_string(),
        other => format!("{other:?}"),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn describe(error: &RedisError) -> String {
    if error.is_io_error() || error.is_connection_dropped() {
        format!("connection closed: {error}")
    } else {
        format!("unreadable reply: {error}")
    }
}

/// The command of a line, whose words are its arguments; [`command!`](crate::command!) calls it.
#[must_use]
pub fn command_of(line: &str) -> Cmd {
    let mut command = Cmd::new();
    command.arg(line.split_ascii_whitespace().collect::<Vec<_>>());
    command
}

/// Builds a [`redis::Cmd`] of one line, into which `{name}` puts a variable, or of arguments of mixed types.
///
/// ```
/// # use mortise_harness::command;
/// let lease = 1_000;
/// let line = command!("LOCK.ACQUIRE key a {lease} WAIT 0");
/// let arguments = command!("LOCK.ACQUIRE", "key", b"a", 1_000, "WAIT", 0);
/// assert_eq!(line.get_packed_command(), arguments.get_packed_command());
/// ```
#[macro_export]
macro_rules! command {
    ($line:literal $(,)?) => {
        $crate::command_of(&::std::format!($line))
    };
    ($($arg:expr),+ $(,)?) => {{
        let mut command = $crate::redis::Cmd::new();
        $(command.arg($arg);)+
        command
    }};
}

/// Runs a command on a [`Conn`](crate::Conn) and returns its reply; panics, naming the command, if that is an error.
///
/// ```no_run
/// # use mortise_harness::{Server, cmd};
/// # let server = Server::start();
/// # let mut conn = server.connect();
/// let token = cmd!(conn, "LOCK.ACQUIRE key owner 1000");
/// let token = cmd!(conn, "LOCK.ACQUIRE", "key", b"\xff", 1000);
/// ```
#[macro_export]
macro_rules! cmd {
    ($conn:expr, $($command:tt)+) => {
        $conn.run(&$crate::command!($($command)+))
    };
}

/// Runs a command on a [`Conn`](crate::Conn); an error reply is `Err` of its line.
#[macro_export]
macro_rules! try_cmd {
    ($conn:expr, $($command:tt)+) => {
        $conn.try_run(&$crate::command!($($command)+))
    };
}

/// Runs a command that has to be refused by an error that begins with this, and returns the error's line.
///
/// ```no_run
/// # use mortise_harness::{Server, refused};
/// # let (server, mut conn) = Server::start_connected();
/// let line = refused!(conn, "ERR ", "LOCK.ACQUIRE key owner 0");
/// ```
#[macro_export]
macro_rules! refused {
    ($conn:expr, $start:expr, $($command:tt)+) => {
        $crate::assert_error($conn.try_run(&$crate::command!($($command)+)), $start)
    };
}

/// Sends a command on a [`Conn`](crate::Conn) without waiting for its reply.
#[macro_export]
macro_rules! send {
    ($conn:expr, $($command:tt)+) => {
        $conn.submit(&$crate::command!($($command)+))
    };
}
