//! Clients that send random commands to a few locks: every command that changes a lock or its key.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::redis::{Arg, Cmd, Value};
use mortise_harness::{Conn, Dice, Server, cmd, command};

pub(crate) const KEYS: usize = 12;
pub(crate) const DATABASES: u64 = 3;
/// The longest of the short leases.
const SHORT: u64 = 150;
/// A lease that outlives the test.
const LONG: u64 = 900_000;

/// Expected errors. Any other is a fault.
const ANSWERS: &[&str] = &[
    "DEADLOCK ",
    "WRONGTYPE ",
    "UNBLOCKED ",
    "NOREPLICAS ",
    "EXECABORT ",
    "ERR no such key",
    "ERR No such client",
    "BUSYKEY ",
    "ERR the owner holds both modes",
    "ERR newowner holds this lock already",
    "NOTHELD ",
];

/// Which clients there are.
#[derive(Clone, Copy)]
pub(crate) struct Players {
    pub(crate) count: usize,
    pub(crate) owners: u64,
    /// Whether some leases outlive the test. Otherwise all end soon, and clients may wait without a limit.
    pub(crate) long_leases: bool,
}

/// What a client chooses.
struct Random {
    dice: Dice,
    of: Players,
}

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.dice.roll(bound)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn key(&mut self) -> String {
        format!("key{}", self.below(KEYS as u64))
    }

    fn owner(&mut self) -> String {
        format!("owner{}", self.below(self.of.owners))
    }

    fn lease(&mut self) -> u64 {
        match self.of.long_leases && self.one_in(4) {
            true => LONG,
            false => 1 + self.below(SHORT),
        }
    }

    fn db(&mut self) -> u64 {
        self.below(DATABASES)
    }
}

/// The state that all connections share.
pub(crate) struct Playground<'s> {
    pub(crate) server: &'s Server,
    players: Players,
    /// The ids of the connections, for others to kill and unblock.
    ids: Vec<AtomicI64>,
    pub(crate) over: AtomicBool,
    /// Redis 7.0 crashes by itself when a client is unblocked whose command a pause has delayed, so the two exclude each other: a client
    /// that unblocks holds this shared, one that pauses holds it exclusively.
    pub(crate) pause: RwLock<()>,
    /// Each client holds it shared while it sends a command, so an exclusive holder stops them all.
    pub(crate) turn: RwLock<()>,
}

impl<'s> Playground<'s> {
    pub(crate) fn new(server: &'s Server, players: Players) -> Self {
        let ids = (0..players.count).map(|_| AtomicI64::new(i64::MAX));
        Playground {
            server,
            players,
            ids: ids.collect(),
            over: AtomicBool::new(false),
            pause: RwLock::new(()),
            turn: RwLock::new(()),
        }
    }

    fn id(&self, random: &mut Random) -> i64 {
        self.ids[random.below(self.ids.len() as u64) as usize].load(Ordering::Relaxed)
    }
}

pub(crate) struct Player<'s> {
    place: usize,
    ground: &'s Playground<'s>,
    random: Random,
    conn: Conn,
    payload: Option<Vec<u8>>,
    /// The key, the owner and the token of the last grant.
    granted: Option<(String, String, i64)>,
}

impl<'s> Player<'s> {
    pub(crate) fn new(place: usize, ground: &'s Playground<'s>, seed: u64) -> Self {
        let mut player = Player {
            place,
            ground,
            random: Random {
                dice: Dice::new(seed.wrapping_add(place as u64)),
                of: ground.players,
            },
            conn: ground.server.connect(),
            payload: None,
            granted: None,
        };
        player.reconnect();
        player
    }

    fn reconnect(&mut self) {
        self.conn = self.ground.server.connect();
        let db = self.random.db();
        cmd!(self.conn, "SELECT {db}");
        // Only from here on may others kill it.
        self.ground.ids[self.place].store(self.conn.client_id(), Ordering::Relaxed);
    }

    pub(crate) fn play(&mut self) {
        let ground = self.ground;
        while !self.over() {
            let _turn = ground.turn.read().unwrap_or_else(PoisonError::into_inner);
            match self.random.below(100) {
                0..36 => self.acquire(),
                36..40 => self.guarded(),
                40..68 => self.change_hold(),
                68..74 => self.look(),
                74..78 => self.meddle_with_others(),
                78..94 => self.change_key(),
                94..96 => self.many_at_once(),
                96 => self.bring_back_a_copy(),
                97 => self.take_several_in_a_script(),
                98 if ground.players.long_leases => self.crowd(),
                _ => self.stop_the_world(),
            }
        }
    }

    /// Sends a request and waits for the answer, unless the connection closes before.
    fn acquire(&mut self) {
        let mode = ["LOCK.ACQUIRE", "LOCK.WLOCK", "LOCK.RLOCK", "LOCK.RLOCK"]
            [self.random.below(4) as usize];
        let (key, owner, lease) = (self.random.key(), self.random.owner(), self.random.lease());
        let mut ask = command!("{mode} {key} {owner} {lease}");
        match self.random.below(4) {
            0 => {}
            1 if !self.ground.players.long_leases => drop(ask.arg("WAIT").arg(0)),
            _ => drop(ask.arg("WAIT").arg(1 + self.random.below(300))),
        }
        if self.random.one_in(2) {
            ask.arg("HOLDS").arg(1 + self.random.below(3));
        }
        let Some(reply) = self.ask_patiently(&ask) else {
            return self.reconnect();
        };
        match self.judge(&ask, reply) {
            Some(Value::Int(_)) if self.over() || self.random.one_in(2) => {
                self.tell(&command!("LOCK.RELEASE {key} {owner} ALL"));
            }
            Some(Value::Int(token)) => self.granted = Some((key, owner, token)),
            _ => {}
        }
    }

    /// `None` if it gave up. No connection gives up after the end.
    fn ask_patiently(&mut self, ask: &Cmd) -> Option<Result<Value, String>> {
        let bytes = ask.get_packed_command();
        let impatient = self.random.one_in(10);
        if self.conn.try_send_raw(&bytes).is_err() {
            return None;
        }
        let limit = Duration::from_millis(1 + self.random.below(60));
        let began = Instant::now();
        loop {
            if let Some(reply) = self.conn.recv_within(limit) {
                return Some(reply);
            }
            if impatient && !self.over() {
                return None;
            }
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "no answer to {}",
                bytes.escape_ascii()
            );
        }
    }

    fn over(&self) -> bool {
        self.ground.over.load(Ordering::Relaxed)
    }

    fn change_hold(&mut self) {
        let command = self.change_of_a_hold();
        self.tell(&command);
    }

    fn change_of_a_hold(&mut self) -> Cmd {
        let (key, owner) = (self.random.key(), self.random.owner());
        let lease = self.random.lease();
        match self.random.below(7) {
            0 => command!("LOCK.RENEW {key} {owner} {lease}"),
            1 => command!("LOCK.RELEASE {key} {owner} ALL"),
            2 => command!("LOCK.RELEASE {key} {owner} READ"),
            3 => command!("LOCK.RELEASE {key} {owner} WRITE HOLDS 0"),
            4 => command!("LOCK.FENCE {key} {owner} 1"),
            5 => command!("LOCK.PASS", key, owner, self.random.owner(), lease),
            _ => command!("LOCK.RELEASE {key} {owner}"),
        }
    }

    /// A command under the last granted lock, if it is still held.
    fn guarded(&mut self) {
        let Some((key, owner, token)) = self.granted.clone() else {
            return;
        };
        let inside = match self.random.below(4) {
            0 => command!("SET written text PX 20"),
            1 => self.change_of_a_key(),
            _ => self.change_of_a_hold(),
        };
        let mut guard = command!("LOCK.GUARD {key} {owner} {token}");
        for arg in inside.args_iter() {
            if let Arg::Simple(bytes) = arg {
                guard.arg(bytes);
            }
        }
        self.tell(&guard);
    }

    fn look(&mut self) {
        let key = self.random.key();
        let command = match self.random.below(3) {
            0 => command!("LOCK.TOP"),
            1 => command!("INFO lock"),
            _ => command!("LOCK.INFO {key}"),
        };
        self.tell(&command);
    }

    fn meddle_with_others(&mut self) {
        let id = self.ground.id(&mut self.random);
        let command = match self.random.below(4) {
            0 => command!("CLIENT KILL ID {id}"),
            1 => command!("CLIENT UNBLOCK {id} ERROR"),
            _ => command!("CLIENT UNBLOCK {id}"),
        };
        let ground = self.ground;
        let _turn = ground.pause.read().unwrap_or_else(PoisonError::into_inner);
        self.tell(&command);
    }

    fn change_key(&mut self) {
        let command = match self.random.below(8) {
            0 => command!("SELECT", self.random.db()),
            _ => self.change_of_a_key(),
        };
        self.tell(&command);
    }

    fn change_of_a_key(&mut self) -> Cmd {
        let (key, other) = (self.random.key(), self.random.key());
        let db = self.random.db();
        match self.random.below(40) {
            0..6 => command!("DEL {key}"),
            6..10 => command!("UNLINK {key} {other}"),
            10..16 => command!("PEXPIRE", key, self.random.below(50)),
            // The key expires by itself, so that nothing stays.
            16..18 => command!("SET", key, "text", "PX", 1 + self.random.below(20)),
            18..24 if key != other => command!("RENAME {key} {other}"),
            24..29 if key != other => command!("COPY {key} {other} DB {db} REPLACE"),
            // An error if the key is already in this database.
            29..34 => {
                let script = "return redis.pcall('MOVE', KEYS[1], ARGV[1]) and 1";
                command!("EVAL", script, 1, key, db)
            }
            34 => command!("SWAPDB", db, self.random.db()),
            // In a script, because Redis 8.0 crashes by itself when a client is unblocked that waits for its plain FLUSHALL.
            35 if self.random.one_in(4) => command!("EVAL", "return redis.call('FLUSHALL')", 0),
            36 if self.random.one_in(4) => command!("FLUSHDB ASYNC"),
            _ => command!("EVAL", "return redis.call('DEL', KEYS[1])", 1, key),
        }
    }

    /// An error can end the script half-way; its changes stay.
    fn take_several_in_a_script(&mut self) {
        let script = "for i = 1, #KEYS do \
                        redis.call('LOCK.RLOCK', KEYS[i], ARGV[1], ARGV[2]) \
                        redis.call('LOCK.ACQUIRE', KEYS[i], ARGV[1], ARGV[2]) \
                        redis.call('LOCK.RELEASE', KEYS[i], ARGV[3], 'ALL') \
                      end return 1";
        let (one, other) = (self.random.key(), self.random.key());
        let (owner, lease, gone) = (
            self.random.owner(),
            self.random.lease(),
            self.random.owner(),
        );
        self.tell(&command!("EVAL", script, 2, one, other, owner, lease, gone));
    }

    /// More readers than are dropped at once, of which most end together.
    fn crowd(&mut self) {
        let (key, lease) = (self.random.key(), self.random.lease());
        for n in 0..150 {
            let lease = if n % 50 == 0 { LONG } else { lease };
            self.tell(&command!("LOCK.RLOCK {key} r{n} {lease}"));
        }
    }

    fn many_at_once(&mut self) {
        let id = self.ground.id(&mut self.random);
        let (key, owner, lease) = (self.random.key(), self.random.owner(), self.random.lease());
        let mut steps = vec![
            command!("LOCK.RELEASE {key} {owner} ALL"),
            match self.random.below(4) {
                0 => command!("CLIENT KILL ID {id}"),
                1 => command!("CLIENT UNBLOCK {id} ERROR"),
                2 => command!("CLIENT UNBLOCK {id}"),
                _ => command!("DEL {key}"),
            },
            command!("LOCK.RLOCK {key} {owner} {lease}"),
        ];
        if self.random.one_in(2) {
            steps.insert(0, command!("MULTI"));
            steps.push(command!("EXEC"));
        }
        let bytes: Vec<u8> = steps.iter().flat_map(Cmd::get_packed_command).collect();
        let ground = self.ground;
        let _turn = ground.pause.read().unwrap_or_else(PoisonError::into_inner);
        if self.conn.try_send_raw(&bytes).is_err() {
            return self.reconnect();
        }
        for step in &steps {
            let reply = self.conn.try_recv();
            let killed = matches!(&reply, Err(error) if error.starts_with("connection closed"));
            self.judge(step, reply);
            if killed {
                return;
            }
        }
    }

    fn bring_back_a_copy(&mut self) {
        let key = self.random.key();
        match self.payload.take() {
            None => {
                if let Some(Value::BulkString(payload)) = self.tell(&command!("DUMP {key}")) {
                    self.payload = Some(payload);
                }
            }
            Some(payload) => {
                // A time to live could end during a comparison.
                let ttl = if self.random.of.long_leases { 0 } else { SHORT };
                self.tell(&command!("RESTORE", key, ttl, payload, "REPLACE"));
            }
        }
    }

    fn stop_the_world(&mut self) {
        if !self.random.one_in(20) {
            return;
        }
        let ms = 1 + self.random.below(30);
        // Over a connection that nobody can kill, so that the undo certainly arrives.
        let mut conn = self.ground.server.connect();
        match self.random.below(3) {
            0 => {
                cmd!(conn, "CONFIG SET min-replicas-to-write 2");
                thread::sleep(Duration::from_millis(ms));
                cmd!(conn, "CONFIG SET min-replicas-to-write 0");
            }
            kind => {
                let _alone = self
                    .ground
                    .pause
                    .write()
                    .unwrap_or_else(PoisonError::into_inner);
                let mode = ["WRITE", "ALL"][kind as usize - 1];
                cmd!(conn, "CLIENT PAUSE {ms} {mode}");
                thread::sleep(Duration::from_millis(ms));
                cmd!(conn, "CLIENT UNPAUSE");
            }
        }
    }

    fn tell(&mut self, command: &Cmd) -> Option<Value> {
        let reply = self.conn.try_run(command);
        self.judge(command, reply)
    }

    /// The reply; `None` for an error. Replaces a connection that was killed.
    fn judge(&mut self, command: &Cmd, reply: Result<Value, String>) -> Option<Value> {
        match reply {
            Ok(value) => Some(value),
            Err(error) if error.starts_with("connection closed") => {
                self.reconnect();
                None
            }
            Err(error) => {
                let is_known = ANSWERS.iter().any(|answer| error.starts_with(answer));
                assert!(
                    is_known || error.contains("is not allowed on script mode"),
                    "{}: {error}",
                    command.get_packed_command().escape_ascii()
                );
                None
            }
        }
    }
}
