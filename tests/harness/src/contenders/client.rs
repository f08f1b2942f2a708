//! A client that repeatedly acquires, stays inside for a while, renews meanwhile, and releases.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::record::Stint;
use super::shared::{Role, Shared, Stay};
use crate::command;
use crate::conn::Conn;
use crate::dice::Dice;

/// One of the contending clients.
pub(super) struct Client {
    pub(super) name: String,
    pub(super) role: Role,
    /// A client that stayed with the old primary, which has refused it.
    pub(super) disappointed: bool,
    pub(super) requests: u64,
    pub(super) dice: Dice,
    pub(super) shared: Arc<Shared>,
}

/// A connection and where it leads.
struct Line {
    port: u16,
    conn: Conn,
}

impl Client {
    pub(super) fn run(&mut self) {
        while !self.shared.stopped() {
            let port = self.port();
            match Conn::to_port(port) {
                Ok(conn) => self.contend(Line { port, conn }),
                Err(error) => {
                    self.refused(port, &format!("no connection: {error}"));
                    thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }

    /// The port at which this client expects the primary now.
    fn port(&self) -> u16 {
        if self.role == Role::Loyal && !self.disappointed {
            self.shared.old
        } else {
            self.shared.current.load(Ordering::SeqCst)
        }
    }

    fn refused(&mut self, port: u16, line: &str) {
        // While there is no other primary, a refusal is temporary: on a busy machine replicas answer late.
        if port == self.shared.old && port != self.shared.current.load(Ordering::SeqCst) {
            self.disappointed = true;
        }
        self.shared.record().refusals.push((port, line.to_owned()));
    }

    /// Acquires repeatedly, until the connection is no longer the right one.
    fn contend(&mut self, mut line: Line) {
        while !self.shared.stopped() && line.port == self.port() {
            self.requests += 1;
            let owner = format!("{}-{}", self.name, self.requests);
            let (key, lease) = (&self.shared.key, self.shared.lease.as_millis());
            let mut sent = Instant::now();
            let acquire = command!("LOCK.ACQUIRE {key} {owner} {lease} WAIT 1000");
            line.conn.submit_or_lose(&acquire);
            let port = line.port;
            let mut reply = self.await_reply(&mut line, None);
            // A long wait may have used up the lease that counts from the request, so confirm it.
            if matches!(reply, Some(Ok(Value::Int(_)))) && sent.elapsed() > self.shared.lease / 10 {
                sent = Instant::now();
                let renew = command!("LOCK.RENEW {key} {owner} {lease}");
                line.conn.submit_or_lose(&renew);
                reply = self.await_reply(&mut line, None);
            }
            match reply {
                Some(Ok(Value::Int(token))) => {
                    let grant = Grant {
                        owner,
                        token,
                        port,
                        until: self.belief(sent),
                    };
                    match self.work(line, &grant, sent) {
                        Some(same) => line = same,
                        None => return,
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    self.refused(port, &error);
                    thread::sleep(Duration::from_millis(5));
                    if error.starts_with("connection closed") {
                        return;
                    }
                }
                None => return,
            }
        }
    }

    /// Until when a lease requested at `sent` lasts for certain.
    fn belief(&self, sent: Instant) -> Instant {
        let drift = self.shared.lease / 100 + Duration::from_millis(2);
        sent + self.shared.lease - drift
    }

    /// The reply, however long it takes while the client has a reason to wait there.
    fn await_reply(
        &self,
        line: &mut Line,
        until: Option<Instant>,
    ) -> Option<Result<Value, String>> {
        loop {
            let slice = Duration::from_millis(20);
            let left = until.map_or(slice, |until| {
                until.saturating_duration_since(Instant::now()).min(slice)
            });
            if let Some(reply) = line.conn.recv_within(left) {
                return Some(reply);
            }
            let over = until.is_some_and(|until| Instant::now() >= until);
            if over || self.shared.stopped() || line.port != self.port() {
                return None;
            }
        }
    }

    /// Stays inside for a while, renewing, and releases. Returns the connection if it can be used again.
    fn work(&mut self, mut line: Line, grant: &Grant, mut sent: Instant) -> Option<Line> {
        let begin = Instant::now();
        let mut until = grant.until;
        let leave = begin + self.some_time();
        let mut next = match self.shared.stay {
            Stay::Silent => until,
            _ => sent + self.shared.lease / 3,
        };
        loop {
            let now = Instant::now();
            if now >= until.min(leave) || self.shared.stopped() {
                break;
            }
            if now < next {
                let wake = next
                    .min(leave)
                    .min(until)
                    .min(now + Duration::from_millis(20));
                thread::sleep(wake.saturating_duration_since(now));
                continue;
            }
            next = now + self.shared.lease / 20;
            if line.port != self.port() {
                let Ok(conn) = Conn::to_port(self.port()) else {
                    continue;
                };
                line = Line {
                    port: self.port(),
                    conn,
                };
            }
            sent = now;
            line.conn.submit_or_lose(&self.renewal(grant));
            match self.await_reply(&mut line, Some(until)) {
                Some(Ok(Value::Int(_))) => {
                    until = self.belief(sent);
                    next = sent + self.shared.lease / 3;
                }
                Some(Ok(_)) => {
                    // Only a reply that reports the loss ends it.
                    self.write_down(grant, begin, Instant::now().min(until));
                    return Some(line);
                }
                // The refusal may be temporary; the belief lasts.
                Some(Err(error)) => {
                    self.refused(line.port, &error);
                    if error.starts_with("connection closed") {
                        line.conn = Conn::to_port(line.port).unwrap_or(line.conn);
                    }
                }
                // The reply may come late and answer something else.
                None => line.conn = Conn::to_port(line.port).unwrap_or(line.conn),
            }
        }
        self.write_down(grant, begin, Instant::now().min(until));
        if self.role == Role::Returner {
            line = self.return_to(line, grant);
        }
        let (key, Grant { owner, token, .. }) = (&self.shared.key, grant);
        let release = command!("LOCK.RELEASE {key} {owner} TOKEN {token}");
        line.conn.submit_or_lose(&release);
        let answered = self.await_reply(&mut line, Some(Instant::now() + self.shared.lease));
        answered.and_then(Result::ok).map(|_| line)
    }

    /// Asks after the end of its lease whether it still holds, until there is a reply, and if so is
    /// inside for a lease.
    fn return_to(&mut self, mut line: Line, grant: &Grant) -> Line {
        while !self.shared.stopped() {
            if line.port != self.port()
                && let Ok(conn) = Conn::to_port(self.port())
            {
                let port = self.port();
                line = Line { port, conn };
            }
            let sent = Instant::now();
            line.conn.submit_or_lose(&self.renewal(grant));
            match self.await_reply(&mut line, None) {
                Some(Ok(Value::Int(_))) => {
                    let (begin, until) = (Instant::now(), self.belief(sent));
                    while Instant::now() < until && !self.shared.stopped() {
                        thread::sleep(Duration::from_millis(20));
                    }
                    self.write_down(grant, begin, Instant::now().min(until));
                    return line;
                }
                Some(Ok(_)) => return line,
                Some(Err(error)) => {
                    self.refused(line.port, &error);
                    thread::sleep(Duration::from_millis(20));
                    line.conn = Conn::to_port(line.port).unwrap_or(line.conn);
                }
                None => line.conn = Conn::to_port(line.port).unwrap_or(line.conn),
            }
        }
        line
    }

    fn renewal(&self, Grant { owner, token, .. }: &Grant) -> Cmd {
        let (key, lease) = (&self.shared.key, self.shared.lease.as_millis());
        command!("LOCK.RENEW {key} {owner} {lease} TOKEN {token}")
    }

    fn some_time(&mut self) -> Duration {
        let lease = self.shared.lease;
        match self.shared.stay {
            Stay::Renewing => return lease * 3 / 2,
            Stay::Silent => return lease,
            Stay::Mixed => {}
        }
        match self.dice.roll(8) {
            0..3 => lease / 50,
            3..5 => lease / 4,
            _ => lease * 3 / 2,
        }
    }

    fn write_down(&self, grant: &Grant, begin: Instant, end: Instant) {
        if begin < end {
            self.shared.record().stints.push(Stint {
                owner: grant.owner.clone(),
                token: grant.token,
                port: grant.port,
                begin,
                end,
            });
        }
    }
}

/// What a client was granted.
struct Grant {
    owner: String,
    token: i64,
    port: u16,
    /// How long it believes, unless it renews.
    until: Instant,
}
