//! A server in memory with commands and boxes: RESP in, RESP out, as briefly as possible. It has one key space, a replica that only
//! keeps copies, no files, and no limits on the number of waiters.

mod acquire;
mod commands;
mod letters;
mod resp;

use std::collections::{BTreeMap, BTreeSet};

use mortise_core::mail::{BoxId, Letter, Outcome};
use mortise_core::{
    Db, Decided, HomeKey, Homes, Instant, KeyId, KeyRef, Left, Lock, Mail, Micros, OwnerRef,
    Removed, Stake, Token, TokenClock, Undelivered, UndeliveredGrant, Undo, WaiterId,
};
use mortise_memory_server::{self as memory, Ended};

use crate::parts::{Clock, ConnId, Data};
use commands::{DEADLOCK, error_text};

/// How long a box lives without a LOCK.MAIL: the server's default.
pub(crate) const MAIL_TIMEOUT: u64 = 5_000;
/// A box is closed when its letters were sent and not forgotten for this many times that long.
const UNFORGOTTEN: u64 = 10;
/// A box is closed this long after the connection of its newest LOCK.MAIL was closed while that waited.
const WITHOUT_READER: u64 = 1_000;
/// How often boxes are checked.
const TICK: u64 = 100;

/// A LOCK.MAIL that waits.
#[derive(Debug)]
struct Reader {
    /// `None` if its connection is closed.
    from: Option<ConnId>,
    /// When it arrived, in microseconds.
    arrived: u64,
    limit: Instant,
    count: usize,
}

/// One server process.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) run_id: u64,
    pub(crate) clock: Clock,
    /// How far its wall clock is ahead, in microseconds.
    pub(crate) wall_ahead: u64,
    /// The locks and the queues.
    memory: memory::Server,
    /// Its replica's copy of the locks and of the token clock.
    replica: (BTreeMap<KeyId, Lock>, TokenClock),
    /// The numbers of boxes and letters.
    numbers: TokenClock,
    mail: Mail,
    undelivered: Undelivered,
    left: Left,
    readers: BTreeMap<BoxId, Reader>,
    /// How long it has read no commands, in milliseconds.
    deaf: u64,
    grace_until: Instant,
    graced: bool,
    /// Written by `LOCK.GUARD`: the last token by key.
    written: BTreeMap<Vec<u8>, u64>,
    /// The present moment, in microseconds of its own clock.
    now: u64,
    /// Replies to connections other than the command's.
    pub(crate) out: Vec<(ConnId, Vec<u8>)>,
    /// A rule that the server itself broke.
    pub(crate) wrong: Option<String>,
}

impl Server {
    pub(crate) fn new(run_id: u64, clock: Clock, wall_ahead: u64) -> Server {
        Server {
            run_id,
            clock,
            wall_ahead,
            memory: memory::Server::default(),
            replica: Default::default(),
            numbers: TokenClock::new(),
            mail: Mail::new(),
            undelivered: Undelivered::new(),
            left: Left::new(),
            readers: BTreeMap::new(),
            deaf: 0,
            grace_until: Instant::default(),
            graced: false,
            written: BTreeMap::new(),
            now: 0,
            out: Vec::new(),
            wrong: None,
        }
    }

    /// The process ends and starts again. Without all its data it neither grants nor renews for `grace` milliseconds, because it
    /// does not know all grants.
    pub(crate) fn restart(&mut self, data: Data, grace: u64, run_id: u64, now: u64) {
        let old = std::mem::replace(self, Server::new(run_id, self.clock, self.wall_ahead));
        self.set_now(now);
        self.written = old.written;
        (self.memory.locks, self.memory.tokens) = match data {
            Data::Own => (old.memory.locks, old.memory.tokens),
            Data::Nothing => Default::default(),
            Data::OfReplica => old.replica,
        };
        self.memory.tokens.resume(self.memory.wall);
        if data != Data::Own {
            self.grace_until = self.memory.now.after(grace);
            self.graced = grace > 0;
        }
    }

    /// Copies everything to the replica.
    pub(crate) fn replicate(&mut self) {
        self.replica = (self.memory.locks.clone(), self.memory.tokens.clone());
    }

    /// The server was stopped for this long, and read nothing meanwhile.
    pub(crate) fn was_stalled(&mut self, millis: u64) {
        self.deaf += millis;
    }

    fn set_now(&mut self, now: u64) {
        /// A day of the year 2026.
        const BASE: u64 = 1_770_000_000_000_000;
        self.now = now;
        self.memory.now = Instant::from_millis(now / 1_000);
        self.memory.wall = Micros(BASE + now + self.wall_ahead);
        self.memory.grace = self.memory.now < self.grace_until;
    }

    fn listened(&self) -> Instant {
        Instant::from_millis((self.now / 1_000).saturating_sub(self.deaf))
    }

    fn next_number(&mut self) -> u64 {
        let last = Token::new(self.memory.tokens.last());
        let number = self.numbers.next(self.memory.wall, last);
        number.map_or(0, Token::get)
    }

    fn has_left(&self, key: &KeyId, owner: OwnerRef<'_>) -> bool {
        self.left.has_left(key.as_ref(), owner, self.memory.now)
    }

    /// Grants the waiters that the lock admits.
    fn settle(&mut self, key: &KeyId) {
        self.memory.settle(key);
        self.post_answers();
    }

    /// Settles the other keys that changed, and grants requests for several keys.
    fn end_turn(&mut self) {
        self.memory.end_turn();
        // A letter whose box is gone undoes its grant.
        while self.post_answers() {
            self.memory.end_turn();
        }
    }

    /// Posts the answers of the waiters that have got one. False if there are none.
    fn post_answers(&mut self) -> bool {
        let ended = std::mem::take(&mut self.memory.ended);
        let any = !ended.is_empty();
        for ended in ended {
            match ended {
                Ended::Decided(decided) => self.post_decided(decided),
                Ended::Deadlock(removed) => {
                    self.post_outcome(removed, Outcome::Refused(DEADLOCK.into()));
                }
            }
        }
        any
    }

    fn post_decided(&mut self, decided: Decided) {
        let waiter = &decided.waiter;
        let outcome = Outcome::of(&decided, self.memory.now, |error| error_text(error).into());
        if let Some(undo) = Undo::of(&decided) {
            let keys = decided.keys.as_slice().iter().map(home_key).collect();
            let grant = UndeliveredGrant { keys, undo };
            self.undelivered.insert(waiter.id, grant);
        }
        let letter = Letter::of(decided.keys.clone(), waiter, outcome);
        self.post(waiter.id, letter);
    }

    fn post_outcome(&mut self, Removed { waiter, keys }: Removed, outcome: Outcome) {
        self.post(waiter.id, Letter::of(keys, &waiter, outcome));
    }

    /// Undoes the grant of this request, whose letter was never delivered.
    fn undo(&mut self, id: WaiterId) {
        if let Some(grant) = self.undelivered.take(id) {
            self.undo_except(&grant, None);
        }
    }

    /// Undoes the grant at all its keys except this one.
    fn undo_except(&mut self, grant: &UndeliveredGrant, but: Option<&KeyId>) {
        for home in &grant.keys {
            let key = Homes::default().key_of(home);
            if Some(&key) != but && !self.memory.undo(&key, &grant.undo) {
                self.undelivered.merge(home, &grant.undo);
            }
        }
    }

    /// Does what is due by now. Returns when the next thing is due, in milliseconds.
    pub(crate) fn on_time(&mut self, now: u64) -> Option<u64> {
        self.set_now(now);
        let at = self.memory.now;
        if self.graced && !self.memory.grace {
            self.graced = false;
            let keys = self.memory.queues.iter().map(|(key, _)| key.clone());
            let keys: Vec<KeyId> = keys.collect();
            keys.iter().for_each(|key| self.settle(key));
        }
        while let Some(id) = self.memory.queues.timed_out(at) {
            let removed = self.memory.remove(id).expect("it waits");
            self.post_outcome(removed, Outcome::Denied);
        }
        while let Some(key) = self.memory.queues.due(at) {
            self.settle(&key);
        }
        self.answer_due_readers();
        self.close_overdue();
        self.left.forget_over(at, usize::MAX);
        self.end_turn();
        self.next_due()
    }

    fn next_due(&self) -> Option<u64> {
        let queues = &self.memory.queues;
        let limits = [queues.next_limit(), queues.next_deadline()];
        let readers = self.readers.values().map(|reader| reader.limit);
        let grace = self.graced.then_some(self.grace_until);
        let due = limits.into_iter().flatten().chain(readers).chain(grace);
        let tick = (self.mail.boxes() > 0).then_some(self.now / 1_000 + TICK);
        due.map(Instant::as_millis).chain(tick).min()
    }

    fn hold(&self, key: &[u8], owner: &[u8]) -> Option<Stake> {
        self.memory.hold(&key_id(key), OwnerRef::new(owner)?)
    }

    /// How many permits the owner has at the key now.
    pub(crate) fn reads_of(&self, key: &[u8], owner: &[u8]) -> u32 {
        self.hold(key, owner).map_or(0, |stake| stake.read)
    }

    /// Whether the owner holds the key now.
    pub(crate) fn is_held_by(&self, key: &[u8], owner: &[u8], now: u64) -> bool {
        let at = Instant::from_millis(now / 1_000);
        self.hold(key, owner)
            .is_some_and(|stake| !stake.is_over(at))
    }

    /// Describes the holds, waiters, boxes and letters left by clients, without the holds of `jobs`. Empty if there are none.
    pub(crate) fn leftovers(
        &mut self,
        now: u64,
        with_mail: bool,
        jobs: &BTreeSet<Vec<u8>>,
    ) -> String {
        self.set_now(now);
        let at = self.memory.now;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut found = String::new();
        for (key, lock) in &self.memory.locks {
            for (owner, stake) in lock.live_holds(at, 100) {
                if jobs.contains(&*owner.text()) {
                    continue;
                }
                let (key, owner) = (text(&key.name), text(&owner.text()));
                let left = stake.deadline.millis_since(at);
                found += &format!("{key} is held by {owner} for {left} ms more; ");
            }
        }
        for (key, queue) in self.memory.queues.iter() {
            for waiter in queue.iter() {
                let (key, owner) = (text(&key.name), text(&waiter.owner.text()));
                found += &format!("{owner} waits for {key}; ");
            }
        }
        if with_mail && !self.mail.is_empty() {
            let (boxes, letters) = (self.mail.boxes(), self.mail.letters());
            found += &format!("{boxes} boxes and {letters} letters are there; ");
        }
        found
    }
}

fn key_id(name: &[u8]) -> KeyId {
    let db = Db::default();
    KeyRef { db, name }.to_id()
}

fn home_key(key: &KeyId) -> HomeKey {
    Homes::default().home_key(key.as_ref())
}
