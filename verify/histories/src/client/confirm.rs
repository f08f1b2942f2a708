//! Confirmed holds: RENEW and WAIT in one write, on a connection of its own. Whoever confirms relies on nothing else, so no failover can
//! take a hold away that it relies on.

use mortise_harness::redis::{Cmd, Value};
use mortise_harness::{Conn, command};

use super::job::{Confirming, Job, Marker};
use super::wire::{REPLY, Trouble, Wire, receive, redirection};
use crate::history::now;

/// How long WAIT waits for replicas, in milliseconds.
const REPLICAS: u64 = 500;

/// A hold to confirm, at one key or at several.
pub(super) struct Hold<'a> {
    pub(super) keys: Vec<&'a str>,
    pub(super) owner: &'a str,
    pub(super) token: u64,
}

/// Why a hold is not confirmed.
pub(super) enum Unconfirmed {
    /// Nobody knows how many replicas have it.
    Unknown,
    /// The server replied that it is over.
    Over,
}

pub(super) struct Confirmer {
    lease: u64,
    how: Confirming,
    /// Finds the primary. A client that confirms with PING, which confirms nothing, sends its renewals over it.
    wire: Wire,
    /// The node of a cluster to which the last one led.
    moved: Option<u16>,
    conn: Option<Conn>,
}

impl Confirmer {
    pub(super) fn new(job: &Job, how: Confirming) -> Confirmer {
        Confirmer {
            lease: job.lease,
            how,
            wire: Wire::new(job.place.clone()),
            moved: None,
            conn: None,
        }
    }

    /// Returns when the renewals were sent, if so many replicas have them.
    pub(super) fn confirm(&mut self, hold: &Hold<'_>) -> Result<u64, Unconfirmed> {
        let sent = now();
        let confirmed = self.send(hold);
        if confirmed.is_err() {
            // Another server may be the primary by now.
            self.conn = None;
        }
        confirmed.map(|()| sent)
    }

    fn send(&mut self, hold: &Hold<'_>) -> Result<(), Unconfirmed> {
        let renewals = self.renewals(hold);
        match self.how.marker {
            Marker::Renewal => self.write_and_wait(&renewals, hold.token),
            Marker::Ping => {
                for renewal in &renewals {
                    check(self.wire.call(renewal, REPLY), hold.token)?;
                }
                self.write_and_wait(&[command!("PING")], hold.token)
            }
        }
    }

    fn renewals(&self, hold: &Hold<'_>) -> Vec<Cmd> {
        let (owner, token, lease) = (hold.owner, hold.token, self.lease);
        let renewal = |key| command!("LOCK.RENEW {key} {owner} {lease} TOKEN {token}");
        hold.keys.iter().map(renewal).collect()
    }

    /// Sends the commands and a WAIT in one write.
    fn write_and_wait(&mut self, commands: &[Cmd], token: u64) -> Result<(), Unconfirmed> {
        let (wait, replicas) = (self.wait(), self.how.replicas);
        let conn = self.open().ok_or(Unconfirmed::Unknown)?;
        let mut bytes = Vec::new();
        for command in commands.iter().chain([&wait]) {
            bytes.extend(command.get_packed_command());
        }
        conn.try_send_raw(&bytes)
            .map_err(|_| Unconfirmed::Unknown)?;
        for _ in commands {
            let reply = receive(conn, REPLY);
            if let Err(Trouble::Refused(line)) = &reply {
                self.moved = redirection(line);
                return Err(Unconfirmed::Unknown);
            }
            check(reply, token)?;
        }
        match receive(conn, REPLY) {
            Ok(Value::Int(count)) if count >= replicas => Ok(()),
            _ => Err(Unconfirmed::Unknown),
        }
    }

    /// The connection, on which one WAIT alone has found enough replicas: on a new one WAIT counts all that are attached.
    fn open(&mut self) -> Option<&mut Conn> {
        if self.conn.is_none() {
            let port = match self.moved.take() {
                Some(port) => port,
                None => self.wire.find()?,
            };
            let mut conn = Conn::to_port(port).ok()?;
            conn.try_send_raw(&self.wait().get_packed_command()).ok()?;
            match receive(&mut conn, REPLY) {
                Ok(Value::Int(count)) if count >= self.how.replicas => self.conn = Some(conn),
                _ => return None,
            }
        }
        self.conn.as_mut()
    }

    fn wait(&self) -> Cmd {
        command!("WAIT", self.how.replicas, REPLICAS)
    }
}

/// The reply to a renewal has to be the hold's token, that to PING is PONG.
fn check(reply: Result<Value, Trouble>, token: u64) -> Result<(), Unconfirmed> {
    match reply {
        Ok(Value::Int(renewed)) if renewed.cast_unsigned() == token => Ok(()),
        Ok(Value::SimpleString(_)) => Ok(()),
        Ok(_) => Err(Unconfirmed::Over),
        Err(_) => Err(Unconfirmed::Unknown),
    }
}
