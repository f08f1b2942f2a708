//! Clients that contend for one lock over a failover, and write down when each believed to be inside.
//!
//! A client believes by its own clock, from the moment it *sent* the request, and is inside for as long as it believes:
//! what a careful client does. Two that are inside at one time are what a lock must never allow.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use redis::Value;

use crate::clock::wall_micros;
use crate::conn::Conn;
use crate::eventually::within;

/// Where a client goes when the primary moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It goes to the new primary at once, and renews there what it holds.
    Mover,
    /// It stays with the old one until that refuses it: it is on the same side of a partition.
    Loyal,
}

/// The time one client was inside, on one grant.
#[derive(Debug, Clone)]
pub struct Stint {
    /// Who.
    pub owner: String,
    /// The grant's fencing token.
    pub token: i64,
    /// The port of the server that granted.
    pub port: u16,
    /// From here on.
    pub begin: Instant,
    /// Until here.
    pub end: Instant,
}

/// What the clients have lived through.
#[derive(Debug, Default)]
pub struct Record {
    /// Sorted by their beginnings once the clients have been stopped.
    pub stints: Vec<Stint>,
    /// Error lines, and from which port.
    pub refusals: Vec<(u16, String)>,
}

impl Record {
    /// The pairs of stints of which the second began before the first was over.
    pub fn overlaps(&self) -> Vec<(&Stint, &Stint)> {
        let mut overlaps = Vec::new();
        let mut last: Option<&Stint> = None;
        for stint in &self.stints {
            if let Some(last) = last
                && stint.begin < last.end
            {
                overlaps.push((last, stint));
            }
            if last.is_none_or(|last| last.end < stint.end) {
                last = Some(stint);
            }
        }
        overlaps
    }

    /// How many stints were granted by the server on `port`.
    pub fn granted_by(&self, port: u16) -> usize {
        self.stints
            .iter()
            .filter(|stint| stint.port == port)
            .count()
    }

    /// Whether the server on `port` has refused with an error that begins with `code`.
    pub fn was_refused(&self, port: u16, code: &str) -> bool {
        self.refusals
            .iter()
            .any(|(by, line)| *by == port && line.starts_with(code))
    }

    /// Checks that nobody was inside beside somebody else, and that tokens grew with time.
    ///
    /// # Panics
    /// If not.
    #[track_caller]
    pub fn assert_exclusive(&self) {
        let overlaps = self.overlaps();
        assert!(overlaps.is_empty(), "two inside: {overlaps:#?}");
        for pair in self.stints.windows(2) {
            assert!(
                pair[0].token < pair[1].token,
                "a token went back: {pair:#?}"
            );
        }
    }
}

/// Running clients. They end when this value goes.
#[derive(Debug)]
pub struct Contenders {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    key: String,
    lease: Duration,
    /// Where the primary was when all began.
    old: u16,
    /// Where it is.
    current: AtomicU16,
    stop: AtomicBool,
    record: Mutex<Record>,
}

impl Contenders {
    /// Starts a client for each role, all for the lock `key`, at the primary on `port`.
    pub fn start(roles: &[Role], key: &str, port: u16, lease: Duration) -> Contenders {
        let shared = Arc::new(Shared {
            key: key.to_owned(),
            lease,
            old: port,
            current: AtomicU16::new(port),
            stop: AtomicBool::new(false),
            record: Mutex::default(),
        });
        // Not the same each time: in step with the server's own rhythm, every run would miss the same moments.
        let seed = wall_micros() as u64 | 1;
        let threads = roles.iter().enumerate().map(|(number, role)| {
            let mut client = Client {
                name: format!("{role:?}-{number}").to_lowercase(),
                role: *role,
                disappointed: false,
                requests: 0,
                random: seed ^ ((number as u64) << 48),
                shared: Arc::clone(&shared),
            };
            thread::spawn(move || client.run())
        });
        Contenders {
            threads: threads.collect(),
            shared,
        }
    }

    /// The primary is on `port` now.
    pub fn go_to(&self, port: u16) {
        self.shared.current.store(port, Ordering::SeqCst);
    }

    /// Waits until the server on `port` has granted `more` times from now on and those stints are over; false if
    /// `patience` ends before.
    pub fn await_grants(&self, port: u16, more: usize, patience: Duration) -> bool {
        let target = self.shared.record().granted_by(port) + more;
        within(patience, || self.shared.record().granted_by(port) >= target).is_ok()
    }

    /// How often each server has refused with which code, for messages.
    pub fn refusals(&self) -> BTreeMap<(u16, String), usize> {
        let mut counts = BTreeMap::new();
        for (port, line) in &self.shared.record().refusals {
            let code = line.split(' ').take(2).collect::<Vec<_>>().join(" ");
            *counts.entry((*port, code)).or_default() += 1;
        }
        counts
    }

    /// Stops the clients and returns what they lived through.
    ///
    /// # Panics
    /// If one of them panicked.
    #[track_caller]
    pub fn stop(mut self) -> Record {
        self.shared.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().expect("the client did not panic");
        }
        let mut record = std::mem::take(&mut *self.shared.record());
        record.stints.sort_by_key(|stint| stint.begin);
        record
    }
}

impl Drop for Contenders {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
    }
}

impl Shared {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record
            .lock()
            .expect("no thread panics with the record in hand")
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

struct Client {
    name: String,
    role: Role,
    /// A loyal one whom the old primary has refused.
    disappointed: bool,
    requests: u64,
    random: u64,
    shared: Arc<Shared>,
}

/// A connection and where it leads.
struct Line {
    port: u16,
    conn: Conn,
}

impl Client {
    fn run(&mut self) {
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

    /// Where this client looks for the primary now.
    fn port(&self) -> u16 {
        if self.role == Role::Loyal && !self.disappointed {
            self.shared.old
        } else {
            self.shared.current.load(Ordering::SeqCst)
        }
    }

    fn refused(&mut self, port: u16, line: &str) {
        // While there is no other primary, a refusal is a mood: a busy machine has replicas that answer late.
        if port == self.shared.old && port != self.shared.current.load(Ordering::SeqCst) {
            self.disappointed = true;
        }
        self.shared.record().refusals.push((port, line.to_owned()));
    }

    /// Acquires again and again, until the connection is no longer the right one.
    fn contend(&mut self, mut line: Line) {
        while !self.shared.stopped() && line.port == self.port() {
            self.requests += 1;
            let owner = format!("{}-{}", self.name, self.requests);
            let lease = self.shared.lease.as_millis() as u64;
            let mut sent = Instant::now();
            line.conn.submit_or_lose(&crate::command!(
                "LOCK.ACQUIRE",
                &self.shared.key,
                &owner,
                lease,
                "WAIT",
                1_000
            ));
            let port = line.port;
            let mut reply = self.await_reply(&mut line, None);
            // After a long wait the time since the request says little: a confirmation does.
            if matches!(reply, Some(Ok(Value::Int(_)))) && sent.elapsed() > self.shared.lease / 10 {
                sent = Instant::now();
                line.conn.submit_or_lose(&crate::command!(
                    "LOCK.RENEW",
                    &self.shared.key,
                    &owner,
                    lease
                ));
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

    /// Until when a lease lasts for certain that was asked for at `sent`.
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

    /// Is inside, renewing, for a while; then releases. Returns the connection if it can be used again.
    fn work(&mut self, mut line: Line, grant: &Grant, mut sent: Instant) -> Option<Line> {
        let begin = Instant::now();
        let mut until = grant.until;
        let leave = begin + self.some_time();
        let lease = self.shared.lease.as_millis() as u64;
        let mut next = sent + self.shared.lease / 3;
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
            line.conn.submit_or_lose(&crate::command!(
                "LOCK.RENEW",
                &self.shared.key,
                &grant.owner,
                lease,
                "TOKEN",
                grant.token
            ));
            match self.await_reply(&mut line, Some(until)) {
                Some(Ok(Value::Int(_))) => {
                    until = self.belief(sent);
                    next = sent + self.shared.lease / 3;
                }
                Some(Ok(_)) => {
                    // Told that it is lost, and not before.
                    self.write_down(grant, begin, Instant::now().min(until));
                    return Some(line);
                }
                // It may be refused for a while only; the belief lasts.
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
        line.conn.submit_or_lose(&crate::command!(
            "LOCK.RELEASE",
            &self.shared.key,
            &grant.owner,
            "TOKEN",
            grant.token
        ));
        let answered = self.await_reply(&mut line, Some(Instant::now() + self.shared.lease));
        answered.and_then(Result::ok).map(|_| line)
    }

    /// Mostly short, sometimes longer than a lease.
    fn some_time(&mut self) -> Duration {
        // Xorshift, by George Marsaglia.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let lease = self.shared.lease;
        match self.random % 8 {
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
