//! A client that contends for one lock by mail as `docs/commands/mail.md` recommends: two connections, a new name for each acquisition, LEAVE after
//! an unknown outcome, belief counted from the request.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mortise_harness::redis::{Cmd, Value};
use mortise_harness::{
    Conn, Dice, Mail, Record, Stint, command, eventually_within, queued, request,
};

pub(crate) const KEY: &str = "key";
pub(crate) const LEASE: Duration = Duration::from_millis(1_500);
/// How long a reply may take, beyond its `WAIT`, before the client gives up the connection.
const PATIENCE: Duration = Duration::from_millis(250);
const WAIT: u64 = 400;

/// Clients that contend until they are stopped, each over its own port.
pub(crate) struct Crowd {
    ports: Vec<Arc<AtomicU16>>,
    stop: Arc<AtomicBool>,
    record: Arc<Mutex<Record>>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    pub(crate) fn start(ports: impl IntoIterator<Item = u16>) -> Crowd {
        Crowd::start_with_boxes(ports, "")
    }

    /// The same, with a hash tag in the names of the boxes.
    pub(crate) fn start_with_boxes(ports: impl IntoIterator<Item = u16>, tag: &str) -> Crowd {
        let (stop, record) = (
            Arc::<AtomicBool>::default(),
            Arc::<Mutex<Record>>::default(),
        );
        let ports: Vec<_> = ports
            .into_iter()
            .map(|port| Arc::new(AtomicU16::new(port)))
            .collect();
        let threads = ports.iter().enumerate().map(|(number, port)| {
            let mut contender = Contender {
                name: format!("c{number}{tag}"),
                port: Arc::clone(port),
                stop: Arc::clone(&stop),
                record: Arc::clone(&record),
                dice: Dice::new(number as u64),
                names: 0,
                commands: None,
                ear: None,
                since: 0,
                after: 0,
            };
            thread::spawn(move || contender.run())
        });
        let threads = threads.collect();
        Crowd {
            ports,
            stop,
            record,
            threads,
        }
    }

    /// The server's new address.
    pub(crate) fn go_to(&self, port: u16) {
        self.ports
            .iter()
            .for_each(|to| to.store(port, Ordering::SeqCst));
    }

    pub(crate) fn stints(&self) -> usize {
        self.record.lock().unwrap().stints.len()
    }

    /// Waits until `more` have been inside from now on.
    #[track_caller]
    pub(crate) fn await_stints(&self, more: usize) {
        let target = self.stints() + more;
        eventually_within(Duration::from_secs(30), "others are granted", || {
            self.stints() >= target
        });
    }

    /// Ends all clients, and checks that no two were inside together, tokens grew, and nothing is left.
    #[track_caller]
    pub(crate) fn ends_well(self, conn: &mut Conn) {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().expect("the client did not panic");
        }
        let mut record = std::mem::take(&mut *self.record.lock().unwrap());
        record.stints.sort_by_key(|stint| stint.begin);
        record.assert_exclusive();
        // Each client sent LEAVE after an unknown outcome, and boxes close by themselves.
        eventually_within(
            Duration::from_secs(10),
            "nobody holds and nobody waits",
            || conn.try_cmd(&["LOCK.INFO", KEY]) == Ok(Value::Nil),
        );
    }
}

struct Contender {
    name: String,
    port: Arc<AtomicU16>,
    stop: Arc<AtomicBool>,
    record: Arc<Mutex<Record>>,
    dice: Dice,
    names: u64,
    commands: Option<(u16, Conn)>,
    ear: Option<(u16, Conn)>,
    since: i64,
    after: i64,
}

/// A hold, and until when the client believes in it.
struct Held {
    owner: String,
    token: i64,
    until: Instant,
}

enum Line {
    Commands,
    Ear,
}

impl Contender {
    fn run(&mut self) {
        while !self.stop.load(Ordering::SeqCst) {
            self.names += 1;
            let owner = format!("{}:{}", self.name, self.names);
            match self.acquire(&owner) {
                Some(held) => self.work(&held),
                None => self.leave(&owner),
            }
        }
    }

    /// One command over one of the connections. `None` if its outcome is unknown.
    fn call(
        &mut self,
        line: Line,
        command: &Cmd,
        patience: Duration,
    ) -> Option<Result<Value, String>> {
        let port = self.port.load(Ordering::SeqCst);
        let slot = match line {
            Line::Commands => &mut self.commands,
            Line::Ear => &mut self.ear,
        };
        if slot.as_ref().is_none_or(|(to, _)| *to != port) {
            *slot = Conn::to_port(port).ok().map(|conn| (port, conn));
        }
        let (_, conn) = slot.as_mut()?;
        let sent = conn.try_send_raw(&command.get_packed_command()).is_ok();
        let reply = sent.then(|| conn.recv_within(patience)).flatten();
        let is_known = match &reply {
            Some(Err(error)) => !error.starts_with("connection closed"),
            Some(Ok(_)) => true,
            None => false,
        };
        if !is_known {
            *slot = None;
        }
        reply.filter(|_| is_known)
    }

    fn acquire(&mut self, owner: &str) -> Option<Held> {
        let (sent, lease) = (Instant::now(), LEASE.as_millis() as u64);
        let command = request!(&self.name, 2_000, "LOCK.ACQUIRE {KEY} {owner} {lease}");
        match self.call(Line::Commands, &command, PATIENCE)?.ok()? {
            Value::Int(token) => self.held(owner, token, sent),
            reply @ Value::Array(_) => {
                let since = queued(&reply);
                self.collect(owner, since, sent)
            }
            _ => None,
        }
    }

    fn held(&self, owner: &str, token: i64, begin: Instant) -> Option<Held> {
        let until = begin + LEASE - LEASE / 100 - Duration::from_millis(2);
        let owner = owner.to_owned();
        (Instant::now() < until).then_some(Held {
            owner,
            token,
            until,
        })
    }

    /// Waits for the letter.
    fn collect(&mut self, owner: &str, since: i64, sent: Instant) -> Option<Held> {
        if self.since != since {
            (self.since, self.after) = (since, 0);
        }
        while !self.stop.load(Ordering::SeqCst) {
            let asked = Instant::now();
            let (name, since, after) = (&self.name, self.since, self.after);
            let command = command!("LOCK.MAIL {name} AFTER {since} {after} WAIT {WAIT}");
            let reply = self.call(Line::Ear, &command, PATIENCE + Duration::from_millis(WAIT));
            let Some(reply) = reply else {
                // The client may repeat the call over another connection as long as the wait lasts.
                if sent.elapsed() > Duration::from_secs(4) {
                    return None;
                }
                continue;
            };
            let told = match reply {
                Ok(reply) => Mail::read(&reply),
                Err(_) => return None,
            };
            if told.since != self.since {
                (self.since, self.after) = (told.since, 0);
                return None;
            }
            for letter in told.letters {
                self.after = self.after.max(letter.number);
                if letter.owner != owner {
                    continue;
                }
                let (token, _, age) = letter.grant?;
                let age = Duration::from_millis(age as u64);
                let granted = (asked + Duration::from_millis(told.waited as u64)).checked_sub(age);
                return self.held(owner, token, granted.unwrap_or(sent).max(sent));
            }
        }
        None
    }

    /// Stays inside for a while, and releases.
    fn work(&mut self, held: &Held) {
        let begin = Instant::now();
        let leave = begin + LEASE * self.dice.roll(40) as u32 / 100;
        while Instant::now() < leave.min(held.until) && !self.stop.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(5));
        }
        let end = Instant::now().min(held.until);
        if begin < end {
            self.record.lock().unwrap().stints.push(Stint {
                owner: held.owner.clone(),
                token: held.token,
                port: self.port.load(Ordering::SeqCst),
                begin,
                end,
            });
        }
        let command = command!("LOCK.RELEASE", KEY, &held.owner, "ALL", "TOKEN", held.token);
        if !matches!(self.call(Line::Commands, &command, PATIENCE), Some(Ok(_))) {
            self.leave(&held.owner);
        }
    }

    /// Repeats it until a reply comes.
    fn leave(&mut self, owner: &str) {
        let command = command!("LOCK.LEAVE {KEY} {owner} FOR 60000");
        let began = Instant::now();
        while !matches!(self.call(Line::Commands, &command, PATIENCE), Some(Ok(_))) {
            // If the client never connects again, the lease ends and the box closes by themselves.
            if self.stop.load(Ordering::SeqCst) && began.elapsed() > Duration::from_secs(5) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}
