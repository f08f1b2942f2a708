//! Thirty thousand locks, waiters or boxes change at once, a hundred thousand with `MORTISE_LONG=1`, and the server keeps serving its
//! other clients. The measure is `lock_longest_stretch_us` of INFO: the longest that the module worked at a stretch, in a timer, an
//! event or a command, in microseconds of processor time. Other programs on the machine hardly change that.

mod boxes;
mod commands;
mod loads;
mod readers;
mod waiters;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mortise_harness::redis::{Cmd, Value};
use mortise_harness::{Builder, Conn, Server, eventually_within};

/// Of everything. The variable is read when this is compiled.
const MANY: usize = match option_env!("MORTISE_LONG") {
    Some(_) => 100_000,
    None => 30_000,
};
/// A busy machine may take this long for all of them.
const PATIENCE: Duration = Duration::from_secs(300);
/// How many commands are pending at a time.
const BATCH: usize = 5_000;
/// A slice is a millisecond. Without slices each event here takes more than 60 ms with a hundred thousand, and most take hundreds. Beside all
/// other tests a stretch that takes 3 ms alone has taken 15.
const LONGEST: i64 = 55_000 * MANY as i64 / 100_000;

/// Allows one crowd at a time on the machine.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server that takes the crowd.
fn server() -> Builder {
    Server::builder()
        .module_arg("max-waiters", "1000000")
        .module_arg("max-queued", "2000000")
        .module_arg("mail-timeout", "60000")
        .config("enable-debug-command", "yes")
}

/// The turn, a server that takes the crowd, and a connection to it.
fn server_alone() -> (MutexGuard<'static, ()>, Server, Conn) {
    let turn = alone();
    let (server, conn) = server().start_connected();
    (turn, server, conn)
}

/// Waits until a number of `INFO lock` is `wanted`, on a busy machine, too.
#[track_caller]
fn await_gauge(server: &Server, name: &str, wanted: i64) {
    eventually_within(PATIENCE, name, || {
        let found = server.gauge(name);
        if found == wanted { Ok(()) } else { Err(found) }
    });
}

/// Runs `commands` in large writes; `check` sees each reply.
#[track_caller]
fn run_many(conn: &mut Conn, commands: impl Iterator<Item = Cmd>, check: impl Fn(Value)) {
    let mut commands = commands.peekable();
    while commands.peek().is_some() {
        let batch: Vec<Cmd> = commands.by_ref().take(BATCH).collect();
        for reply in conn.pipeline(&batch) {
            check(reply.expect("no error"));
        }
    }
}

/// Checks that the module never worked for long at a stretch. A second would trigger its own stall guard.
#[track_caller]
fn assert_never_long(server: &Server) {
    let longest = server.gauge("longest_stretch_us");
    assert!(longest < LONGEST, "at work for {longest} µs at a stretch");
}
