//! An otherwise idle client measures how long a command takes, and a `PING`.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::redis::Cmd;
use mortise_harness::{Conn, command};

use super::load::Counts;
use super::scheme::{Scheme, Tag, Use};

const EVERY: Duration = Duration::from_millis(10);

/// Microseconds that replies took since the last report.
#[derive(Debug, Default, Clone)]
pub(crate) struct Times {
    pub(crate) locks: Vec<f64>,
    pub(crate) pings: Vec<f64>,
}

pub(crate) struct Probe {
    scheme: Scheme,
    times: Mutex<Times>,
}

impl Probe {
    pub(crate) fn new(scheme: Scheme) -> Probe {
        Probe {
            scheme,
            times: Mutex::default(),
        }
    }

    /// # Panics
    /// If the server does not answer.
    pub(crate) fn run(&self, tag: &Tag, counts: &Counts, over: &AtomicBool) {
        let mut conn = Conn::to_port(tag.port).expect("a server that listens");
        // None of the load's connections has this number.
        const NUMBER: usize = 1_000_000;
        for round in 0.. {
            if over.load(Ordering::Relaxed) {
                return;
            }
            let ping = timed(&mut conn, &command!("PING"));
            let commands = self.scheme.commands(Use::Write, &tag.text, NUMBER, round);
            let locks: Vec<f64> = commands.iter().map(|it| timed(&mut conn, it)).collect();
            Counts::add(&counts.grants);
            Counts::add(&counts.releases);
            let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
            times.pings.push(ping);
            times.locks.extend(locks);
            drop(times);
            thread::sleep(EVERY);
        }
    }

    pub(crate) fn take(&self) -> Times {
        mem::take(&mut *self.times.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn timed(conn: &mut Conn, command: &Cmd) -> f64 {
    let began = Instant::now();
    conn.run(command);
    began.elapsed().as_secs_f64() * 1e6
}
