//! Clients that send random commands to a few locks.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use mortise_harness::redis::{Arg, Cmd, Value};
use mortise_harness::{Conn, Dice, Server, cmd, command};

pub(crate) const CLIENTS: u64 = 12;
const KEYS: u64 = 16;
const OWNERS: u64 = 20;
const DATABASES: u64 = 3;

/// Expected errors. Any other is a fault.
const ANSWERS: &[&str] = &[
    "DEADLOCK ",
    "WRONGTYPE ",
    "BUSYKEY ",
    "EXECABORT ",
    "ERR no such key",
    "ERR the owner holds both modes",
    "NOTHELD ",
    "is not allowed on script mode",
];

/// What the clients share.
pub(crate) struct Crowd<'s> {
    primary: &'s Server,
    pub(crate) over: AtomicBool,
    /// Each client holds it shared while it sends a command, so an exclusive holder stops them all.
    pub(crate) turn: RwLock<()>,
}

impl<'s> Crowd<'s> {
    pub(crate) fn new(primary: &'s Server) -> Crowd<'s> {
        Crowd {
            primary,
            over: AtomicBool::new(false),
            turn: RwLock::new(()),
        }
    }

    /// What the `number`th client does until the end.
    pub(crate) fn play(&self, number: u64) {
        let mut client = Client {
            primary: self.primary,
            conn: self.primary.connect(),
            dice: Dice::new(number),
            granted: None,
        };
        while !self.over.load(Relaxed) {
            let _turn = self.turn.read().expect("nobody fails in its turn");
            client.step();
        }
    }
}

struct Client<'s> {
    primary: &'s Server,
    conn: Conn,
    dice: Dice,
    /// The key, the owner and the token of the last grant.
    granted: Option<(String, String, i64)>,
}

impl Client<'_> {
    fn step(&mut self) {
        match self.dice.roll(100) {
            0..40 => self.acquire(),
            40..45 => self.guarded(),
            45..75 => {
                let change = self.change_of_a_hold();
                self.run(&change);
            }
            75..90 => {
                let change = self.change_of_a_key();
                self.run(&change);
            }
            90..94 => self.transaction(),
            94..97 => self.script(),
            97 => self.leave_while_waiting(),
            98 => drop(cmd!(self.conn, "SELECT", self.dice.roll(DATABASES))),
            _ => {
                let pause = command!("CLIENT", "PAUSE", 1 + self.dice.roll(20), "WRITE");
                self.run(&pause);
            }
        }
    }

    fn key(&mut self) -> String {
        format!("key{}", self.dice.roll(KEYS))
    }

    fn owner(&mut self) -> String {
        format!("owner{}", self.dice.roll(OWNERS))
    }

    /// Most leases end soon; some outlive the test.
    fn lease(&mut self) -> u64 {
        match self.dice.roll(4) {
            0 => 600_000,
            _ => 1 + self.dice.roll(300),
        }
    }

    fn request(&mut self) -> Cmd {
        let (key, owner) = (self.key(), self.owner());
        self.request_of(&key, &owner)
    }

    fn request_of(&mut self, key: &str, owner: &str) -> Cmd {
        let mode = *self
            .dice
            .pick(&["LOCK.ACQUIRE", "LOCK.RLOCK", "LOCK.RLOCK"]);
        let mut request = command!(mode, key, owner, self.lease());
        if self.dice.roll(3) == 0 {
            request.arg("HOLDS").arg(1 + self.dice.roll(3));
        }
        request
    }

    fn acquire(&mut self) {
        let (key, owner) = (self.key(), self.owner());
        let mut request = self.request_of(&key, &owner);
        if self.dice.roll(2) == 0 {
            request.arg("WAIT").arg(1 + self.dice.roll(150));
        }
        if let Some(Value::Int(token)) = self.run(&request) {
            self.granted = Some((key, owner, token));
        }
    }

    /// Other commands on the last granted lock, if it is still held.
    fn guarded(&mut self) {
        let Some((key, owner, token)) = self.granted.clone() else {
            return;
        };
        let inside = match self.dice.roll(4) {
            0 => self.request(),
            1 => self.change_of_a_hold(),
            2 => command!("INCR", format!("count{}", self.dice.roll(KEYS))),
            _ => self.change_of_a_key(),
        };
        let mut guard = command!("LOCK.GUARD {key} {owner} {token}");
        for arg in inside.args_iter() {
            if let Arg::Simple(bytes) = arg {
                guard.arg(bytes);
            }
        }
        self.run(&guard);
    }

    fn change_of_a_hold(&mut self) -> Cmd {
        let (key, owner) = (self.key(), self.owner());
        match self.dice.roll(8) {
            0 => command!("LOCK.RENEW", key, owner, self.lease()),
            1 => command!("LOCK.FENCE {key} {owner} 1"),
            2 => command!("LOCK.RELEASE {key} {owner} READ"),
            3 => command!("LOCK.RELEASE {key} {owner} WRITE HOLDS 0"),
            _ => command!("LOCK.RELEASE {key} {owner} ALL"),
        }
    }

    fn change_of_a_key(&mut self) -> Cmd {
        let (key, other) = (self.key(), self.key());
        let db = self.dice.roll(DATABASES);
        match self.dice.roll(40) {
            0..10 => command!("DEL {key}"),
            10..14 => command!("UNLINK {key} {other}"),
            14..18 => command!("PEXPIRE", key, self.dice.roll(50)),
            18..20 => command!("SET", key, "text", "PX", 1 + self.dice.roll(20)),
            20..26 if key != other => command!("RENAME {key} {other}"),
            26..32 if key != other => command!("COPY {key} {other} DB {db} REPLACE"),
            // An error if the key is already in this database.
            32..37 => command!(
                "EVAL",
                "return redis.pcall('MOVE', KEYS[1], ARGV[1]) and 1",
                1,
                key,
                db
            ),
            37 => command!("SWAPDB", db, self.dice.roll(DATABASES)),
            38 if self.dice.roll(4) == 0 => command!("FLUSHDB"),
            39 if self.dice.roll(12) == 0 => command!("EVAL", "return redis.call('FLUSHALL')", 0),
            _ => command!("DEL {key}"),
        }
    }

    fn transaction(&mut self) {
        let mut steps = vec![command!("MULTI")];
        for _ in 0..1 + self.dice.roll(4) {
            steps.push(self.request());
            steps.push(self.change_of_a_hold());
        }
        steps.push(command!("EXEC"));
        for reply in self.conn.pipeline(&steps) {
            judge("a transaction", reply.err());
        }
    }

    fn script(&mut self) {
        // An error can end the script half-way; its changes stay.
        let script = "for i = 1, #KEYS do \
                        redis.call('LOCK.RLOCK', KEYS[i], ARGV[1], ARGV[2]) \
                        redis.call('LOCK.ACQUIRE', KEYS[i], ARGV[1], ARGV[2]) \
                        redis.call('LOCK.RELEASE', KEYS[i], ARGV[3], 'ALL') \
                      end return 1";
        let (one, other) = (self.key(), self.key());
        let (owner, lease, gone) = (self.owner(), self.lease(), self.owner());
        let script = command!("EVAL", script, 2, one, other, owner, lease, gone);
        self.run(&script);
    }

    fn leave_while_waiting(&mut self) {
        let mut request = self.request();
        request.arg("WAIT").arg(0);
        self.conn.submit(&request);
        let _ = self
            .conn
            .recv_within(Duration::from_millis(self.dice.roll(30)));
        self.conn = self.primary.connect();
    }

    fn run(&mut self, command: &Cmd) -> Option<Value> {
        let reply = self.conn.try_run(command);
        let line = command.get_packed_command().escape_ascii().to_string();
        match reply {
            Ok(value) => Some(value),
            Err(error) => {
                judge(&line, Some(error));
                None
            }
        }
    }
}

fn judge(what: &str, error: Option<String>) {
    if let Some(error) = error {
        let answer = ANSWERS.iter().any(|answer| error.contains(answer));
        assert!(answer, "{what}: {error}");
    }
}
