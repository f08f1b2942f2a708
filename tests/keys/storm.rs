//! Eight clients send locks every command that changes keys. Afterwards `INFO lock` counts the locks and the holders that
//! `LOCK.INFO` shows.

use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::{
    Conn, Dice, Server, array, bytes, cmd, command, eventually, int, lock_info, text,
};

const CLIENTS: u64 = 8;
const DATABASES: u64 = 4;
const NAMES: u64 = 12;
/// The longest lease that ends within the storm, in milliseconds.
const SHORT: u64 = 80;
/// A lease that outlasts the storm.
const LONG: u64 = 900_000;

struct Client {
    conn: Conn,
    dice: Dice,
}

impl Client {
    fn name(&mut self) -> String {
        format!("k{}", self.dice.roll(NAMES))
    }

    fn lease(&mut self) -> u64 {
        match self.dice.roll(3) {
            0 => LONG,
            _ => 1 + self.dice.roll(SHORT),
        }
    }

    fn run(&mut self, words: &[&str]) {
        // The server may refuse any of these.
        let _ = self.conn.try_cmd(words);
    }

    fn act(&mut self) {
        let (one, other) = (self.name(), self.name());
        let (lease, owner) = (self.lease().to_string(), self.dice.roll(6).to_string());
        let db = self.dice.roll(DATABASES).to_string();
        match self.dice.roll(100) {
            0..18 => self.run(&["LOCK.ACQUIRE", &one, &owner, &lease]),
            18..36 => self.run(&["LOCK.RLOCK", &one, &owner, &lease]),
            36..40 => self.run(&["LOCK.ACQUIRE", &one, &owner, &lease, "WAIT", "20"]),
            40..48 => self.run(&["LOCK.RELEASE", &one, &owner, "ALL"]),
            48..52 => self.run(&["LOCK.RENEW", &one, &owner, &lease]),
            52..54 => self.run(&["LOCK.INFO", &one]),
            54..66 => self.run(&["RENAME", &one, &other]),
            66..72 => self.run(&["MOVE", &one, &db]),
            72..76 => self.run(&["COPY", &one, &other, "DB", &db, "REPLACE"]),
            76..80 => self.run(&[
                "SWAPDB",
                &db,
                &(owner.parse::<u64>().unwrap() % DATABASES).to_string(),
            ]),
            80..83 => self.run(&["DEL", &one]),
            83..86 => self.run(&["UNLINK", &one]),
            86..88 => self.run(&["SET", &one, "value"]),
            88 => self.run(&["FLUSHDB"]),
            89 => self.run(&["FLUSHDB", "ASYNC"]),
            90 if self.dice.roll(4) == 0 => self.run(&["FLUSHALL"]),
            90..93 => self.restore(&one, &other),
            93..96 => self.crowd(&one),
            96 => self.run(&["PEXPIRE", &one, "5"]),
            _ => self.run(&["SELECT", &db]),
        }
    }

    fn restore(&mut self, from: &str, to: &str) {
        if let Ok(dump) = self.conn.try_cmd(&["DUMP", from])
            && !mortise_harness::is_nil(&dump)
        {
            let _ = self
                .conn
                .try_run(&command!("RESTORE", to, 0, bytes(&dump), "REPLACE"));
        }
    }

    /// More readers than are dropped at once, of which most end together.
    fn crowd(&mut self, name: &str) {
        let lease = self.lease();
        let readers: Vec<_> = (0..150)
            .map(|n| match n % 50 {
                0 => command!("LOCK.RLOCK", name, format!("r{n}"), LONG),
                _ => command!("LOCK.RLOCK", name, format!("r{n}"), lease),
            })
            .collect();
        self.conn.pipeline(&readers);
    }
}

/// Locks and holders.
type Counts = [i64; 2];

fn counted(server: &Server) -> Counts {
    let lines = server.info("lock");
    ["lock_locks", "lock_holders"].map(|field| lines[field].parse().unwrap())
}

/// What `LOCK.INFO` shows of all keys.
fn shown(server: &Server) -> Counts {
    let mut conn = server.connect();
    let mut shown = [0, 0];
    for db in 0..DATABASES {
        cmd!(conn, "SELECT", db);
        for key in array(&cmd!(conn, "KEYS", "*")) {
            let key = text(key);
            if text(&cmd!(conn, "TYPE", &key)) == "mort-lock"
                && let Some(lock) = lock_info(&mut conn, &key)
            {
                shown = [
                    shown[0] + i64::from(lock.holders > 0),
                    shown[1] + lock.holders,
                ];
            }
        }
    }
    shown
}

/// Waits until every short lease is over, and the module has done all its work.
fn rest(server: &Server) {
    let mut conn = server.connect();
    cmd!(conn, "SELECT", DATABASES);
    cmd!(conn, "LOCK.ACQUIRE", "witness", "w", 2 * SHORT);
    eventually("the short leases are over", || {
        int(&cmd!(conn, "EXISTS", "witness")) == 0
    });
    eventually(
        "the server has freed what it frees on another thread",
        || server.info("memory")["lazyfree_pending_objects"] == "0",
    );
    let mut before = [-1, -1];
    eventually("the counts no longer change", || {
        thread::sleep(Duration::from_millis(250));
        let now = counted(server);
        std::mem::replace(&mut before, now) == now
    });
}

fn storm(seed: u64, lasts: Duration) {
    let server = Server::start();
    let end = Instant::now() + lasts;
    for round in 0.. {
        let until = (Instant::now() + Duration::from_millis(400)).min(end);
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let mut client = Client {
                    conn: server.connect(),
                    dice: Dice::new(seed + 1_000 * round + client),
                };
                scope.spawn(move || {
                    while Instant::now() < until {
                        client.act();
                    }
                });
            }
        });
        rest(&server);
        // This names every lock, so that those that were renamed count, too.
        let shown = shown(&server);
        rest(&server);
        assert_eq!(
            counted(&server),
            shown,
            "seed {seed}, round {round}: INFO lock and the sum of LOCK.INFO"
        );
        if Instant::now() > end {
            break;
        }
    }
}

#[test]
fn after_a_storm_info_counts_exactly_what_is_held() {
    let long = std::env::var_os("MORTISE_LONG").is_some();
    let (seeds, lasts) = if long { (20, 20) } else { (1, 4) };
    for seed in 0..seeds {
        storm(seed * 1_000_000, Duration::from_secs(lasts));
    }
}
