//! Programs that acquire their locks one after the other, in a consistent order, together with others that acquire several at once: all are
//! granted, none gets `DEADLOCK`, and no two are inside that exclude each other.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::redis::{Arg, Cmd};
use mortise_harness::{Bundles, Conn, Dice, Server, command, int, is_nil};

use super::nobody_waits;

const KEYS: usize = 6;

fn key(number: usize) -> String {
    format!("{{k}}{number}")
}

/// For each key, -1 if a writer is inside, or the number of readers.
struct Rooms([AtomicI64; KEYS]);

impl Rooms {
    fn enter(&self, room: usize, write: bool) {
        let room = &self.0[room];
        let (before, allowed) = match write {
            true => (room.swap(-1, Ordering::SeqCst), 0..=0),
            false => (room.fetch_add(1, Ordering::SeqCst), 0..=i64::MAX),
        };
        assert!(allowed.contains(&before), "{before} were inside");
    }

    fn leave(&self, room: usize, write: bool) {
        match write {
            true => self.0[room].store(0, Ordering::SeqCst),
            false => drop(self.0[room].fetch_sub(1, Ordering::SeqCst)),
        }
    }
}

struct Program {
    conn: Conn,
    dice: Dice,
    name: String,
    rooms: Arc<Rooms>,
    /// For each key, whether it is held to write.
    held: Vec<(usize, bool)>,
    owner: String,
}

impl Program {
    fn entered(&mut self, room: usize, write: bool) {
        self.rooms.enter(room, write);
        self.held.push((room, write));
    }

    fn some_keys(&mut self, least: u64, most: u64) -> Vec<usize> {
        let wanted = least + self.dice.roll(most - least + 1);
        let mut keys: Vec<usize> = (0..KEYS).collect();
        while keys.len() as u64 > wanted {
            let out = self.dice.roll(keys.len() as u64) as usize;
            keys.remove(out);
        }
        keys
    }

    fn acquire(&mut self, room: usize, write: bool) {
        let mode = if write { "LOCK.WLOCK" } else { "LOCK.RLOCK" };
        self.ask_until_granted(&command!(mode, key(room), &self.owner, 60_000, "WAIT", 0));
        self.entered(room, write);
    }

    fn acquire_all(&mut self, rooms: &[usize]) {
        let names: Vec<_> = rooms.iter().map(|room| key(*room)).collect();
        let mut ask = command!("LOCK.MACQUIRE", &self.owner, 60_000, names.len(), &names);
        self.ask_until_granted(ask.arg("WAIT").arg(0));
        for room in rooms {
            self.entered(*room, true);
        }
    }

    /// One key after the other, in the order of their names.
    fn one_by_one(&mut self) {
        for room in self.some_keys(1, 4) {
            let write = self.dice.roll(3) > 0;
            self.acquire(room, write);
        }
    }

    /// All at once, in any order.
    fn at_once(&mut self) {
        let mut keys = self.some_keys(1, 4);
        if self.dice.roll(2) == 0 {
            keys.reverse();
        }
        self.acquire_all(&keys);
    }

    /// First some at once, and then more that come later in the order.
    fn at_once_and_on(&mut self) {
        let keys = self.some_keys(3, 5);
        let (first, more) = keys.split_at(2);
        self.acquire_all(&[first[1], first[0]]);
        match self.dice.roll(2) {
            0 => self.acquire_all(more),
            _ => more.iter().for_each(|room| self.acquire(*room, true)),
        }
    }

    /// Sometimes with a limit, so that requests leave their queues again.
    fn ask_until_granted(&mut self, ask: &Cmd) {
        loop {
            let mut ask = ask.clone();
            let limited = self.dice.roll(4) == 0;
            if limited {
                // The last argument is the limit.
                let words: Vec<Vec<u8>> = ask.args_iter().map(word).collect();
                let (_, but_the_last) = words.split_last().expect("arguments");
                ask = Cmd::new();
                ask.arg(but_the_last).arg(1 + self.dice.roll(5));
            }
            let reply = self.conn.run(&ask);
            if !is_nil(&reply) {
                assert!(int(&reply) > 0);
                return;
            }
            assert!(limited, "{}: null", self.owner);
        }
    }

    fn give_back(&mut self) {
        let mut releases = Vec::new();
        while !self.held.is_empty() {
            let nth = self.dice.roll(self.held.len() as u64) as usize;
            let (room, write) = self.held.swap_remove(nth);
            self.rooms.leave(room, write);
            releases.push(command!("LOCK.RELEASE", key(room), &self.owner));
        }
        for reply in self.conn.pipeline(&releases) {
            assert_eq!(int(&reply.unwrap()), 0, "{}", self.owner);
        }
    }

    fn run(mut self, until: Instant) -> u64 {
        let mut rounds = 0;
        while Instant::now() < until {
            rounds += 1;
            self.owner = match self.dice.roll(2) {
                0 => format!("{}:{rounds}", self.name),
                _ => format!("{}##{rounds}", self.name),
            };
            match self.dice.roll(3) {
                0 => self.one_by_one(),
                1 => self.at_once(),
                _ => self.at_once_and_on(),
            }
            if self.dice.roll(8) == 0 {
                thread::sleep(Duration::from_micros(500));
            }
            self.give_back();
        }
        rounds
    }
}

fn word(arg: Arg<&[u8]>) -> Vec<u8> {
    match arg {
        Arg::Simple(bytes) => bytes.to_vec(),
        _ => unreachable!("no cursor"),
    }
}

#[test]
fn programs_with_a_consistent_order_meet_no_deadlock_with_requests_for_several() {
    const PROGRAMS: usize = 16;
    let server = Server::start();
    let rooms = Arc::new(Rooms(Default::default()));
    let start = Arc::new(Barrier::new(PROGRAMS));
    let programs: Vec<_> = (0..PROGRAMS)
        .map(|number| {
            let program = Program {
                conn: server.connect(),
                dice: Dice::new(number as u64),
                name: format!("p{number}"),
                rooms: Arc::clone(&rooms),
                held: Vec::new(),
                owner: String::new(),
            };
            let start = Arc::clone(&start);
            thread::spawn(move || {
                start.wait();
                program.run(Instant::now() + Duration::from_secs(4))
            })
        })
        .collect();
    let rounds: Vec<u64> = programs
        .into_iter()
        .map(|program| program.join().expect("it is granted, without a conflict"))
        .collect();
    assert!(rounds.iter().all(|rounds| *rounds > 10), "{rounds:?}");
    assert_eq!(server.gauge("total_deadlocks"), 0);
    nobody_waits(&server, &[]);
    assert_eq!(server.gauge("locks"), 0);
}

#[test]
fn no_read_of_all_keys_sees_a_part_of_a_grant_while_a_hundred_clients_contend() {
    let (server, mut conn) = Server::start_connected();
    let bundles = Bundles::start(server.port(), 100);
    let mut holding = 0;
    while bundles.grants() < 3_000 {
        holding += Bundles::assert_whole(&mut conn);
    }
    bundles.stop();
    assert!(holding > 0);
    assert_eq!(Bundles::assert_whole(&mut conn), 0);
    assert_eq!(server.gauge("waiters"), 0);
}
