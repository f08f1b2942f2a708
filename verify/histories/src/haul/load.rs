//! A thousand connections that acquire and release at an even rate.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::Conn;
use mortise_harness::redis::Value;

use super::scheme::{Scheme, Tag, Use};

pub(crate) const THREADS: usize = 4;
const CONNECTIONS: usize = 1_000;
const EACH: usize = CONNECTIONS / THREADS;
const REPLY: Duration = Duration::from_secs(60);

/// What clients counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) grants: AtomicU64,
    /// Of these, granted by letter.
    pub(crate) letters: AtomicU64,
    pub(crate) releases: AtomicU64,
    /// Grants that are never released.
    pub(crate) left: AtomicU64,
    /// Wrong replies.
    pub(crate) odd: AtomicU64,
}

impl Counts {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) struct Load {
    scheme: Scheme,
    /// How long a round of all connections lasts.
    period: Duration,
    pub(crate) counts: Counts,
}

impl Load {
    pub(crate) fn new(scheme: Scheme, rate: u64) -> Load {
        let rounds = rate as f64 / 60.0 / CONNECTIONS as f64;
        Load {
            scheme,
            period: Duration::from_secs_f64(1.0 / rounds),
            counts: Counts::default(),
        }
    }

    /// One thread's share.
    ///
    /// # Panics
    /// If a server does not answer.
    pub(crate) fn run(&self, thread: usize, tags: &[Tag], over: &AtomicBool) {
        let connections = thread * EACH..(thread + 1) * EACH;
        let mut conns: Vec<(usize, &Tag, Conn)> = connections
            .map(|number| {
                let tag = &tags[number % tags.len()];
                let conn = Conn::to_port(tag.port).expect("a server that listens");
                (number, tag, conn)
            })
            .collect();
        let began = Instant::now();
        let mut round = 0;
        while !over.load(Ordering::Relaxed) {
            for (number, tag, conn) in &mut conns {
                let commands = self
                    .scheme
                    .commands(Use::of(*number), &tag.text, *number, round);
                let bytes: Vec<u8> = commands
                    .iter()
                    .flat_map(|it| it.get_packed_command())
                    .collect();
                conn.try_send_raw(&bytes).expect("a server that lives");
            }
            for (number, _, conn) in &mut conns {
                self.read(Use::of(*number), conn);
            }
            round += 1;
            let next = self.period.mul_f64(round as f64);
            thread::sleep(next.saturating_sub(began.elapsed()));
        }
    }

    fn read(&self, what: Use, conn: &mut Conn) {
        let mut reply = || conn.recv_within(REPLY).expect("a reply");
        match reply() {
            Ok(Value::Int(_) | Value::Okay) => Counts::add(&self.counts.grants),
            _ => Counts::add(&self.counts.odd),
        }
        if what == Use::Expire {
            return Counts::add(&self.counts.left);
        }
        match reply() {
            Ok(Value::Int(_)) => Counts::add(&self.counts.releases),
            _ => Counts::add(&self.counts.odd),
        }
    }
}
