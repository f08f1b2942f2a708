//! Plain commands, sent to the server that has the lock, without retries.

use std::collections::BTreeMap;
use std::time::Duration;

use mortise_harness::redis::{Cmd, Value};
use mortise_harness::{Conn, array, command, text};

use super::job::{PRIMARY, Place};

/// How long the reply to a command without a wait may take.
pub(crate) const REPLY: Duration = Duration::from_millis(1_500);
/// How long a Sentinel's reply may take.
const SENTINEL: Duration = Duration::from_millis(500);

/// Why there is no reply.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The server's error.
    Refused(String),
    /// No reply came, so the outcome is unknown.
    Lost,
}

/// Connections of one task.
pub(crate) struct Wire {
    place: Place,
    /// The node that is asked first.
    port: Option<u16>,
    conns: BTreeMap<u16, Conn>,
    turn: usize,
}

impl Wire {
    pub(crate) fn new(place: Place) -> Wire {
        Wire {
            place,
            port: None,
            conns: BTreeMap::new(),
            turn: 0,
        }
    }

    /// Runs one command, and waits this long for its reply.
    pub(crate) fn call(&mut self, command: &Cmd, limit: Duration) -> Result<Value, Trouble> {
        let mut port = match self.port {
            Some(port) => port,
            None => self.find().ok_or(Trouble::Lost)?,
        };
        let mut asking = false;
        for _ in 0..5 {
            self.port = Some(port);
            match self.send(port, command, asking, limit) {
                Err(Trouble::Refused(line)) => match redirection(&line) {
                    Some(to) => {
                        asking = line.starts_with("ASK ");
                        port = to;
                    }
                    None => {
                        // Another server may be the primary by now, even at the same address.
                        let elsewhere = ["READONLY", "NOREPLICAS", "UNBLOCKED", "CLUSTERDOWN"];
                        if elsewhere.iter().any(|code| line.starts_with(code)) {
                            self.port = None;
                            self.conns.remove(&port);
                        }
                        return Err(Trouble::Refused(line));
                    }
                },
                Err(Trouble::Lost) => {
                    self.port = None;
                    return Err(Trouble::Lost);
                }
                done => return done,
            }
        }
        Err(Trouble::Refused("redirected from node to node".to_owned()))
    }

    fn send(
        &mut self,
        port: u16,
        command: &Cmd,
        asking: bool,
        limit: Duration,
    ) -> Result<Value, Trouble> {
        // The connection is kept only after it has replied.
        let mut conn = match self.conns.remove(&port) {
            Some(conn) => conn,
            None => Conn::to_port(port).map_err(|_| Trouble::Lost)?,
        };
        if asking {
            exchange(&mut conn, &command!("ASKING"), limit)?;
        }
        let reply = exchange(&mut conn, command, limit);
        if !matches!(reply, Err(Trouble::Lost)) {
            self.conns.insert(port, conn);
        }
        reply
    }

    /// The server to ask first.
    pub(super) fn find(&mut self) -> Option<u16> {
        let ports = self.place.ports();
        self.turn += 1;
        let port = ports[self.turn % ports.len()];
        if !matches!(self.place, Place::Sentinels(_)) {
            return Some(port);
        }
        let mut sentinel = Conn::to_port(port).ok()?;
        let question = command!("SENTINEL", "GET-MASTER-ADDR-BY-NAME", PRIMARY);
        let address = exchange(&mut sentinel, &question, SENTINEL).ok()?;
        text(&array(&address)[1]).parse().ok()
    }
}

fn exchange(conn: &mut Conn, command: &Cmd, limit: Duration) -> Result<Value, Trouble> {
    conn.try_send_raw(&command.get_packed_command())
        .map_err(|_| Trouble::Lost)?;
    receive(conn, limit)
}

/// The next reply.
pub(super) fn receive(conn: &mut Conn, limit: Duration) -> Result<Value, Trouble> {
    match conn.recv_within(limit) {
        None => Err(Trouble::Lost),
        Some(Ok(value)) => Ok(value),
        Some(Err(line))
            if line.starts_with("connection closed") || line.starts_with("unreadable") =>
        {
            Err(Trouble::Lost)
        }
        Some(Err(line)) => Err(Trouble::Refused(line)),
    }
}

/// `MOVED 1234 127.0.0.1:7001` redirects to that node; `ASK` does for one command.
pub(super) fn redirection(line: &str) -> Option<u16> {
    let mut words = line.split(' ');
    match words.next()? {
        "MOVED" | "ASK" => words.nth(1)?.rsplit(':').next()?.parse().ok(),
        _ => None,
    }
}
