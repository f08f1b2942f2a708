//! Eight clients send locks every command that changes keys. Afterwards `INFO lock` counts the locks and the holders that
//! `LOCK.INFO` shows.

use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::redis::Value;
use mortise_harness::{
    Conn, Dice, Server, array, cmd, command, eventually, int, is_long_run, lock_info, text, try_cmd,
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

    fn act(&mut self) {
        let (one, other) = (self.name(), self.name());
        let (lease, owner) = (self.lease(), self.dice.roll(6));
        let db = self.dice.roll(DATABASES);
        let command = match self.dice.roll(100) {
            0..18 => command!("LOCK.ACQUIRE {one} {owner} {lease}"),
            18..36 => command!("LOCK.RLOCK {one} {owner} {lease}"),
            36..40 => command!("LOCK.ACQUIRE {one} {owner} {lease} WAIT 20"),
            40..48 => command!("LOCK.RELEASE {one} {owner} ALL"),
            48..52 => command!("LOCK.RENEW {one} {owner} {lease}"),
            52..54 => command!("LOCK.INFO {one}"),
            54..66 => command!("RENAME {one} {other}"),
            66..72 => command!("MOVE {one} {db}"),
            72..76 => command!("COPY {one} {other} DB {db} REPLACE"),
            76..80 => command!("SWAPDB", db, owner % DATABASES),
            80..83 => command!("DEL {one}"),
            83..86 => command!("UNLINK {one}"),
            86..88 => command!("SET {one} value"),
            88 => command!("FLUSHDB"),
            89 => command!("FLUSHDB ASYNC"),
            90 if self.dice.roll(4) == 0 => command!("FLUSHALL"),
            90..93 => return self.restore(&one, &other),
            93..96 => return self.crowd(&one),
            96 => command!("PEXPIRE {one} 5"),
            _ => command!("SELECT {db}"),
        };
        // The server may refuse any of these.
        let _ = self.conn.try_run(&command);
    }

    fn restore(&mut self, from: &str, to: &str) {
        if let Ok(Value::BulkString(dump)) = try_cmd!(self.conn, "DUMP {from}") {
            let _ = try_cmd!(self.conn, "RESTORE", to, 0, dump, "REPLACE");
        }
    }

    /// More readers than are dropped at once, of which most end together.
    fn crowd(&mut self, name: &str) {
        let lease = self.lease();
        let readers: Vec<_> = (0..150)
            .map(|n| match n % 50 {
                0 => command!("LOCK.RLOCK {name} r{n} {LONG}"),
                _ => command!("LOCK.RLOCK {name} r{n} {lease}"),
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
        cmd!(conn, "SELECT {db}");
        for key in array(&cmd!(conn, "KEYS *")) {
            let key = text(key);
            if text(&cmd!(conn, "TYPE {key}")) == "mort-lock"
                && let Some(lock) = lock_info(&mut conn, &key)
            {
                shown[0] += i64::from(lock.holders > 0);
                shown[1] += lock.holders;
            }
        }
    }
    shown
}

/// Waits until every short lease is over, and the module has done all its work.
fn rest(server: &Server) {
    let mut conn = server.connect();
    cmd!(conn, "SELECT {DATABASES}");
    cmd!(conn, "LOCK.ACQUIRE", "witness", "w", 2 * SHORT);
    eventually("the short leases are over", || {
        int(&cmd!(conn, "EXISTS witness")) == 0
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
        assert_eq!(counted(&server), shown, "seed {seed}, round {round}");
        if Instant::now() > end {
            break;
        }
    }
}

#[test]
fn after_a_storm_info_counts_exactly_what_is_held() {
    let (seeds, lasts) = if is_long_run() { (20, 20) } else { (1, 4) };
    for seed in 0..seeds {
        storm(seed * 1_000_000, Duration::from_secs(lasts));
    }
}
