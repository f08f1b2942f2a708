//! Owners that hold and wait, and what the searches among them cost.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::Duration;

use mortise_core::{
    Db, Instant, KeyId, Lock, Micros, Mode, Owner, PendingRequest, Queues, Request, Terms,
    TokenClock, Turn,
};

use crate::requests::{self, for_one};

/// How often the longest search is measured.
const AGAIN: u32 = if cfg!(debug_assertions) { 1 } else { 200 };
/// No search takes more steps, the last page included.
const MOST: usize = 4_000 + 16;
const NOW: Instant = Instant::from_millis(1_000);

#[derive(Default)]
pub(super) struct Crowd {
    queues: Queues,
    locks: HashMap<KeyId, Lock>,
    tokens: TokenClock,
    searches: usize,
    /// The most steps that one search took, for which wait that was, and how long all of them took.
    pub(super) most_steps: usize,
    costliest: Option<PendingRequest>,
    total: Duration,
}

/// How long this thread has run on a processor. Where the system does not say, how late it is.
pub(crate) fn processor_time() -> Duration {
    static BEGAN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ran = text.and_then(|text| text.split(' ').next()?.parse().ok());
    ran.map_or_else(|| BEGAN.elapsed(), Duration::from_nanos)
}

pub(super) fn key(number: usize) -> KeyId {
    KeyId {
        db: Db(0),
        name: Rc::from(format!("key-{number}").into_bytes()),
    }
}

pub(super) fn owner(name: &str, number: usize) -> Owner {
    requests::named(&format!("{name}-{number}"))
}

impl Crowd {
    pub(super) fn hold(&mut self, key: KeyId, owner: &Owner, mode: Mode) {
        let request = Request {
            owner: owner.as_ref(),
            terms: terms(mode),
        };
        let mut live = self.locks.entry(key).or_default().at(NOW, |_, _| {});
        live.acquire(&request, Turn::First, &mut self.tokens, Micros(0))
            .expect("it is compatible");
    }

    /// The key loses its lock.
    pub(super) fn free(&mut self, key: &KeyId) {
        self.locks.remove(key);
    }

    /// The queues see who holds the key now.
    pub(super) fn observe(&mut self, key: &KeyId) {
        let held = self.held(key);
        self.queues.observe(key.as_ref(), held);
    }

    fn held(&self, key: &KeyId) -> Lock {
        self.locks.get(key).map(Lock::observe).unwrap_or_default()
    }

    /// Whether the wait would close a cycle.
    pub(super) fn closes(&mut self, wait: &PendingRequest) -> bool {
        let wait = self.observed(wait);
        let began = processor_time();
        let (closes, steps) = match self.queues.enqueue(&wait) {
            Ok(enqueued) => {
                let steps = enqueued.steps();
                self.queues.withdraw(enqueued);
                (false, steps)
            }
            Err(deadlock) => (true, deadlock.steps),
        };
        self.total += processor_time() - began;
        self.searches += 1;
        if steps > self.most_steps {
            self.most_steps = steps;
            self.costliest = Some(wait);
        }
        assert!(steps <= MOST, "{steps} steps");
        closes
    }

    /// The request, which finds its lock as it is now.
    fn observed(&self, wait: &PendingRequest) -> PendingRequest {
        let mut wait = wait.clone();
        for key in &mut wait.keys {
            key.held = self.held(&key.key);
        }
        wait
    }

    /// Begins a wait that closes no cycle.
    pub(super) fn wait(&mut self, key: KeyId, owner: Owner, mode: Mode) {
        let wait = wait(key, owner, mode);
        assert!(!self.closes(&wait));
        self.push(wait);
    }

    /// Begins a wait without a search for a cycle.
    pub(super) fn push(&mut self, wait: PendingRequest) {
        let wait = self.observed(&wait);
        self.queues.push(&wait);
    }

    /// Adds many waiters at a key.
    pub(super) fn push_all(&mut self, key: &KeyId, name: &str, count: usize) {
        for number in 0..count {
            self.push(wait(key.clone(), owner(name, number), Mode::Write));
        }
    }

    /// Each of so many tasks holds a lock, and waits for that of the next one.
    pub(super) fn add_chain(&mut self, length: usize) {
        for number in 0..length {
            self.hold(key(number), &owner("link", number), Mode::Write);
        }
        for number in 0..length - 1 {
            self.push(wait(key(number + 1), owner("link", number), Mode::Write));
        }
    }

    pub(super) fn print(&mut self, what: &str) {
        let (searches, total, most) = (self.searches, self.total, self.most_steps);
        println!("{what}: {searches} searches in {total:?}, at most {most} steps");
        if let Some(wait) = self.costliest.clone() {
            // A clock of processor time ticks every few milliseconds.
            let began = processor_time();
            for _ in 0..AGAIN {
                self.closes(&wait);
            }
            let each = (processor_time() - began) / AGAIN;
            println!("{what}: the one with the most steps takes {each:?} by now");
        }
    }
}

pub(super) fn wait(key: KeyId, owner: Owner, mode: Mode) -> PendingRequest {
    for_one(&key, owner, terms(mode), Lock::free(), NOW)
}

fn terms(mode: Mode) -> Terms {
    requests::terms(mode, 1_000)
}
