//! Requests that wait: puts them into a queue, and lists the queue.

use std::collections::BTreeMap;

use redis::{Cmd, ToRedisArgs};

use crate::conn::Conn;
use crate::eventually::eventually;
use crate::lock::lock_info;
use crate::server::Server;
use crate::value::int;

impl Server {
    /// A new connection that is blocked by `command`; what [`waiter!`](crate::waiter!) calls.
    ///
    /// # Panics
    /// If the command is answered instead.
    #[track_caller]
    pub fn waiter(&self, command: &Cmd) -> Conn {
        let mut conn = self.connect();
        conn.submit(command);
        self.await_blocked(&conn);
        conn
    }

    /// Puts many requests into queues: one connection each, in this order, without a check of each.
    ///
    /// # Panics
    /// If any of them is answered instead.
    #[track_caller]
    pub fn waiters(&self, commands: impl IntoIterator<Item = Cmd>) -> Vec<Conn> {
        let before = self.gauge("waiters");
        let mut conns = Vec::new();
        for command in commands {
            // The greeting is answered before the next connection is opened, so requests reach the server in order.
            let mut conn = self.connect();
            conn.submit(&command);
            conns.push(conn);
        }
        let expected = before + conns.len() as i64;
        eventually("all requests wait", || {
            let waiters = self.gauge("waiters");
            if waiters >= expected {
                Ok(())
            } else {
                Err(waiters)
            }
        });
        conns
    }

    /// A number of `INFO lock`, its prefix left out: `gauge("waiters")`.
    ///
    /// # Panics
    /// If there is no such field.
    #[track_caller]
    pub fn gauge(&self, name: &str) -> i64 {
        gauge(&self.info("lock"), name)
    }

    /// Waits until a number of `INFO lock` is `wanted`: `await_gauge("waiters", 0)`.
    ///
    /// # Panics
    /// If it is not within 30 seconds.
    #[track_caller]
    pub fn await_gauge(&self, name: &str, wanted: i64) {
        eventually(&format!("lock_{name} is {wanted}"), || {
            let found = self.gauge(name);
            if found == wanted { Ok(()) } else { Err(found) }
        });
    }
}

/// A number among the lines of `INFO lock`.
#[track_caller]
fn gauge(lines: &BTreeMap<String, String>, name: &str) -> i64 {
    match lines
        .get(&format!("lock_{name}"))
        .map(|value| value.parse())
    {
        Some(Ok(number)) => number,
        _ => panic!("no number lock_{name} in {lines:?}"),
    }
}

/// The owners that hold `key`, in no particular order but always the same for the same owners.
#[track_caller]
pub fn holders_of(conn: &mut Conn, key: impl ToRedisArgs) -> Vec<String> {
    let info = lock_info(conn, key);
    let mut owners: Vec<String> = info
        .iter()
        .flat_map(|info| &info.holds)
        .map(|hold| String::from_utf8_lossy(&hold.owner).into_owned())
        .collect();
    owners.sort();
    owners
}

/// The owners that wait for `key`, in their order.
#[track_caller]
pub fn queue_of(conn: &mut Conn, key: impl ToRedisArgs) -> Vec<String> {
    let info = lock_info(conn, key);
    info.iter()
        .flat_map(|info| &info.queue)
        .map(|queued| String::from_utf8_lossy(&queued.owner).into_owned())
        .collect()
}

/// The token that a request is granted, now or when its wait is over.
///
/// # Panics
/// If it is answered anything else, or nothing.
#[track_caller]
pub fn granted(conn: &mut Conn) -> i64 {
    int(&conn.recv())
}

/// A new connection to a [`Server`](crate::Server) that is blocked by a command.
///
/// ```no_run
/// # use mortise_harness::{Server, cmd, granted, waiter};
/// # let server = Server::start();
/// # let mut a = server.connect();
/// cmd!(a, "LOCK.ACQUIRE key a 10000");
/// let mut b = waiter!(server, "LOCK.ACQUIRE key b 10000 WAIT 0");
/// cmd!(a, "LOCK.RELEASE key a");
/// let token = granted(&mut b);
/// ```
#[macro_export]
macro_rules! waiter {
    ($server:expr, $($command:tt)+) => {
        $server.waiter(&$crate::command!($($command)+))
    };
}
