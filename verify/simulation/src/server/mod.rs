//! A server in memory: RESP in, `mortise-core` decides, RESP out. It does what the module does around the core, as briefly as
//! possible: one key space, a replica that only keeps copies, no files, no limits on the number of waiters.

mod acquire;
mod commands;
mod letters;
mod resp;
mod several;

use std::collections::{BTreeMap, BTreeSet};

use mortise_core::mail::{BoxId, Letter, Outcome};
use mortise_core::{
    Db, Decided, HomeKey, Homes, Instant, KeyId, KeyRef, Left, Live, Lock, Mail, Micros, OwnerRef,
    Queues, Removed, Token, TokenClock, Undelivered, UndeliveredGrant, Undo, WaiterId,
};

use crate::parts::{Clock, ConnId, Data};

/// How long a box lives without a LOCK.MAIL: the server's default.
pub(crate) const MAIL_TIMEOUT: u64 = 5_000;
/// A box is closed when its letters were sent and not forgotten for this many times that long.
const UNFORGOTTEN: u64 = 10;
/// A box is closed this long after the connection of its newest LOCK.MAIL was closed while that waited.
const WITHOUT_READER: u64 = 1_000;
/// How often boxes are checked.
const TICK: u64 = 100;
/// How many requests are decided in one step.
const MOST: usize = 64;

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
    locks: BTreeMap<Vec<u8>, Lock>,
    /// Its replica's copy of the locks and of the token clock.
    replica: (BTreeMap<Vec<u8>, Lock>, TokenClock),
    queues: Queues,
    /// Keys to settle at the end of the turn: those that changed besides the command's own.
    dirty: BTreeSet<KeyId>,
    tokens: TokenClock,
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
            locks: BTreeMap::new(),
            replica: Default::default(),
            queues: Queues::new(),
            dirty: BTreeSet::new(),
            tokens: TokenClock::new(),
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
        self.now = now;
        self.written = old.written;
        (self.locks, self.tokens) = match data {
            Data::Own => (old.locks, old.tokens),
            Data::Nothing => Default::default(),
            Data::OfReplica => old.replica,
        };
        let wall = self.wall();
        self.tokens.resume(wall);
        if data != Data::Own {
            self.grace_until = self.instant().after(grace);
            self.graced = grace > 0;
        }
    }

    /// Copies everything to the replica.
    pub(crate) fn replicate(&mut self) {
        self.replica = (self.locks.clone(), self.tokens.clone());
    }

    /// The server was stopped for this long, and read nothing meanwhile.
    pub(crate) fn was_stalled(&mut self, millis: u64) {
        self.deaf += millis;
    }

    fn instant(&self) -> Instant {
        Instant::from_millis(self.now / 1_000)
    }

    fn listened(&self) -> Instant {
        Instant::from_millis((self.now / 1_000).saturating_sub(self.deaf))
    }

    fn wall(&self) -> Micros {
        /// A day of the year 2026.
        const BASE: u64 = 1_770_000_000_000_000;
        Micros(BASE + self.now + self.wall_ahead)
    }

    fn forbids_grants(&self) -> bool {
        self.instant() < self.grace_until
    }

    fn next_number(&mut self) -> u64 {
        let last = Token::new(self.tokens.last());
        let number = self.numbers.next(self.wall(), last);
        number.map_or(0, Token::get)
    }

    /// Runs `act` on the lock as it is now, or on a free one. The key is deleted if nobody holds the lock afterwards.
    fn with_live<T>(&mut self, key: &[u8], act: impl FnOnce(&mut Server, &mut Live<'_>) -> T) -> T {
        let mut lock = self.locks.remove(key).unwrap_or_default();
        let mut live = lock.at(self.instant(), |_, _| {});
        let result = act(self, &mut live);
        drop(live.take_remains());
        if !lock.is_free() {
            self.locks.insert(key.to_vec(), lock);
        }
        result
    }

    /// Grants the waiters that the lock admits.
    fn settle(&mut self, key: &[u8]) {
        loop {
            if self.queues.get(key_ref(key)).is_none() {
                return self.with_live(key, |_, _| {});
            }
            let is_closed = self.forbids_grants();
            let settled = self.with_live(key, |server, live| match is_closed {
                true => {
                    let now = server.instant();
                    server
                        .queues
                        .settle_lost(key_ref(key), live.lock(), now, MOST)
                }
                false => {
                    let wall = server.wall();
                    let (queues, tokens) = (&mut server.queues, &mut server.tokens);
                    queues.settle(key_ref(key), live, tokens, wall, MOST)
                }
            });
            self.dirty.extend(settled.left);
            for decided in settled.decided {
                self.decide(decided);
            }
            let mut broken = false;
            for id in settled.upgrading {
                broken |= self.check_upgrade(id);
            }
            if !settled.more && !broken {
                return;
            }
        }
    }

    /// Settles the other keys that changed, and grants requests for several keys.
    fn end_turn(&mut self) {
        loop {
            if let Some(key) = self.dirty.pop_first() {
                self.settle(&key.name);
            } else if let Some(id) = self.queues.next_due() {
                self.grant_several(id);
            } else {
                return;
            }
        }
    }

    fn decide(&mut self, decided: Decided) {
        let waiter = &decided.waiter;
        let outcome = Outcome::of(&decided, self.instant(), |error| {
            format!("ERR {error:?}").into()
        });
        if let Some(undo) = Undo::of(&decided) {
            let keys = decided.keys.as_slice().iter();
            let keys = keys.map(|key| home_key(&key.name)).collect();
            let grant = UndeliveredGrant { keys, undo };
            self.undelivered.insert(waiter.id, grant);
        }
        let letter = Letter::of(decided.keys.clone(), waiter, outcome);
        self.post(waiter.id, letter);
    }

    /// True if the upgrade closed a cycle and was refused.
    fn check_upgrade(&mut self, id: WaiterId) -> bool {
        match self.queues.end_cycles(id, self.instant()) {
            Ok(moves) => {
                let moved = self.queues.keys_of_moves(&moves);
                self.dirty.extend(moved);
                false
            }
            Err(_) => {
                self.end_waiting(id, Outcome::Refused("DEADLOCK through an upgrade".into()));
                true
            }
        }
    }

    /// Removes a request from all its queues.
    fn remove(&mut self, id: WaiterId) -> Option<Removed> {
        let removed = self.queues.remove(id)?;
        self.dirty.extend(removed.keys.as_slice().iter().cloned());
        Some(removed)
    }

    /// Removes a request from its queues, and posts the outcome.
    fn end_waiting(&mut self, id: WaiterId, outcome: Outcome) {
        if let Some(Removed { waiter, keys }) = self.remove(id) {
            self.post(id, Letter::of(keys, &waiter, outcome));
        }
    }

    /// Undoes the grant of this request, whose letter was never delivered.
    fn undo(&mut self, id: WaiterId) {
        if let Some(grant) = self.undelivered.take(id) {
            self.undo_except(&grant, None);
        }
    }

    /// Undoes the grant at all its keys except this one.
    fn undo_except(&mut self, grant: &UndeliveredGrant, but: Option<&[u8]>) {
        let undo = &grant.undo;
        for home in &grant.keys {
            let key = Homes::default().key_of(home);
            if Some(&*key.name) == but {
                continue;
            }
            let before = undo.before.as_deref().copied();
            let undone = self.with_live(&key.name, |_, live| {
                live.undo(undo.owner.as_ref(), undo.granted, before)
            });
            if !undone {
                self.undelivered.merge(home, undo);
            }
            self.dirty.insert(key);
        }
    }

    fn end_of_wait(&self, wait: u64) -> Instant {
        match wait {
            0 => Instant::NEVER,
            wait => self.instant().after(wait),
        }
    }

    /// Does what is due by now. Returns when the next thing is due, in milliseconds.
    pub(crate) fn on_time(&mut self, now: u64) -> Option<u64> {
        self.now = now;
        let at = self.instant();
        if self.graced && !self.forbids_grants() {
            self.graced = false;
            let keys: Vec<Vec<u8>> = self
                .queues
                .iter()
                .map(|(key, _)| key.name.to_vec())
                .collect();
            keys.iter().for_each(|key| self.settle(key));
        }
        while let Some(id) = self.queues.timed_out(at) {
            self.end_waiting(id, Outcome::Denied);
        }
        while let Some(key) = self.queues.due(at) {
            self.settle(&key.name);
        }
        self.answer_due_readers();
        self.close_overdue();
        self.left.forget_over(at, usize::MAX);
        self.end_turn();
        self.next_due()
    }

    fn next_due(&self) -> Option<u64> {
        let limits = [self.queues.next_limit(), self.queues.next_deadline()];
        let readers = self.readers.values().map(|reader| reader.limit);
        let grace = self.graced.then_some(self.grace_until);
        let due = limits.into_iter().flatten().chain(readers).chain(grace);
        let tick = (self.mail.boxes() > 0).then_some(self.now / 1_000 + TICK);
        due.map(Instant::as_millis).chain(tick).min()
    }

    /// How many permits the owner has at the key now.
    pub(crate) fn reads_of(&self, key: &[u8], owner: &[u8]) -> u32 {
        let hold = self.locks.get(key).zip(OwnerRef::new(owner));
        let hold = hold.and_then(|(lock, owner)| lock.hold(owner));
        hold.map_or(0, |stake| stake.read)
    }

    /// Whether the owner holds the key now.
    pub(crate) fn is_held_by(&self, key: &[u8], owner: &[u8], now: u64) -> bool {
        let at = Instant::from_millis(now / 1_000);
        let hold = self.locks.get(key).zip(OwnerRef::new(owner));
        let hold = hold.and_then(|(lock, owner)| lock.hold(owner));
        hold.is_some_and(|stake| !stake.is_over(at))
    }

    /// Describes the holds, waiters, boxes and letters left by clients, without the holds of `jobs`. Empty if there are none.
    pub(crate) fn leftovers(
        &mut self,
        now: u64,
        with_mail: bool,
        jobs: &BTreeSet<Vec<u8>>,
    ) -> String {
        self.now = now;
        let at = self.instant();
        let mut found = String::new();
        for (key, lock) in &self.locks {
            for (owner, stake) in lock.live_holds(at, 100) {
                let (key, owner) = (String::from_utf8_lossy(key), owner.text().to_vec());
                if jobs.contains(&owner) {
                    continue;
                }
                let owner = String::from_utf8_lossy(&owner).into_owned();
                let left = stake.deadline.millis_since(at);
                found += &format!("{key} is held by {owner} for {left} ms more; ");
            }
        }
        for (key, queue) in self.queues.iter() {
            for waiter in queue.iter() {
                let (key, owner) = (
                    String::from_utf8_lossy(&key.name),
                    waiter.owner.text().to_vec(),
                );
                let owner = String::from_utf8_lossy(&owner).into_owned();
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

fn key_ref(name: &[u8]) -> KeyRef<'_> {
    let db = Db::default();
    KeyRef { db, name }
}

fn home_key(name: &[u8]) -> HomeKey {
    Homes::default().home_key(key_ref(name))
}

fn key_id(name: &[u8]) -> KeyId {
    key_ref(name).to_id()
}
