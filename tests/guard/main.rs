//! LOCK.GUARD runs a command only if its owner holds the lock by the token at that moment.

mod deep;
mod events;
mod every_command;
mod gates;
mod holding;
mod inside;
mod locks_inside;
mod nodes;
mod replication;
mod replies;
mod rights;
mod together;

use mortise_harness::redis::Value;
use mortise_harness::{Conn, assert_error, cmd, int, try_cmd};

/// Makes `a` hold `key`, and returns the token.
#[track_caller]
fn held(conn: &mut Conn, key: &str) -> i64 {
    int(&cmd!(conn, "LOCK.ACQUIRE {key} a 600000"))
}

/// Runs a command under the lock `key` of `a`.
fn guard(conn: &mut Conn, token: i64, inside: &str) -> Result<Value, String> {
    try_cmd!(conn, "LOCK.GUARD key a {token} {inside}")
}

#[track_caller]
fn assert_not_held(reply: Result<Value, String>) {
    assert_error(reply, "NOTHELD ");
}

/// Checks that the error names the command, in upper or lower case.
#[track_caller]
fn assert_refused_by_name(reply: Result<Value, String>, name: &str) {
    let error = assert_error(reply, "ERR ");
    let named = error.to_lowercase().contains(&name.to_lowercase());
    assert!(named, "{name}: {error}");
}
