//! A server is killed at random moments under load. When it comes back, it has everything that it acknowledged.
//!
//! Ten kills a test, a thousand with `MORTISE_LONG=1`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use mortise_harness::redis::Value;
use mortise_harness::{
    Conn, Dice, Server, cmd, command, eventually_within, is_long_run, lock_info, try_cmd,
};

const CLIENTS: usize = 4;
/// The keys of each client. No other client uses them, so each knows their state.
const KEYS: usize = 5;
const LEASE: u64 = 3_600_000;
/// Steps between two kills, at least.
const STEPS: u64 = 51;
/// A shared disk is slow.
const PATIENCE: Duration = Duration::from_secs(60);

fn kills() -> u32 {
    if is_long_run() { 1_000 } else { 10 }
}

/// One owner's hold on a key as its client knows it: write count, read count, token. No hold if all are 0.
type State = (i64, i64, i64);

/// What a client knows of one key.
#[derive(Debug, Clone, Default)]
struct Known {
    /// The last acknowledged state.
    acknowledged: State,
    /// The request without a reply when the server died, if there was one.
    asked: Option<Step>,
}

/// A client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Write,
    Read,
    ReleaseWrite,
    ReleaseRead,
    Drop,
    Fence(i64),
}

impl Known {
    /// Whether the server may have `found`: the acknowledged state, with or without the last request applied.
    fn allows(&self, found: State) -> bool {
        let (write, read, token) = self.acknowledged;
        if found == self.acknowledged {
            return true;
        }
        // A new hold, or one that becomes a write hold, has a token that no client knows yet.
        let newer = found.2 > token;
        match self.asked {
            None => false,
            Some(Step::Write) if write == 0 => (found.0, found.1) == (1, read) && newer,
            Some(Step::Write) => found == (write + 1, read, token),
            Some(Step::Read) if write + read == 0 => (found.0, found.1) == (0, 1) && newer,
            Some(Step::Read) => found == (write, read + 1, token),
            Some(Step::ReleaseWrite) => found == after(write - 1, read, token),
            Some(Step::ReleaseRead) => found == after(write, read - 1, token),
            Some(Step::Drop) => found == (0, 0, 0),
            Some(Step::Fence(to)) => found == (write, read, to),
        }
    }
}

fn after(write: i64, read: i64, token: i64) -> State {
    if write + read == 0 {
        (0, 0, 0)
    } else {
        (write, read, token)
    }
}

#[derive(Debug)]
struct Client {
    number: usize,
    name: String,
    keys: BTreeMap<String, Known>,
    /// The largest token that it got in a reply.
    highest: i64,
    dice: Dice,
}

impl Client {
    fn new(number: usize) -> Client {
        let keys = (0..KEYS).map(|key| (format!("key-{number}-{key}"), Known::default()));
        Client {
            number,
            name: format!("client-{number}"),
            keys: keys.collect(),
            highest: 0,
            dice: Dice::new(number as u64),
        }
    }

    /// Sends requests until the server dies or the test ends.
    fn run(&mut self, conn: &mut Conn, steps: &AtomicU64, stop: &AtomicBool) {
        while !stop.load(Ordering::SeqCst) {
            let number = self.dice.roll(KEYS as u64);
            let key = format!("key-{}-{number}", self.number);
            let (write, read, token) = self.keys[&key].acknowledged;
            let step = match (self.dice.roll(8), write, read) {
                (0..3, _, _) => Step::Write,
                (3, _, _) => Step::Read,
                (4..6, 1.., _) => Step::ReleaseWrite,
                (4..7, _, 1..) => Step::ReleaseRead,
                (6, 1.., _) => Step::Fence(token + 1),
                (7, 1.., _) | (7, _, 1..) => Step::Drop,
                _ => Step::Write,
            };
            let known = self.keys.get_mut(&key).expect("one of its keys");
            known.asked = Some(step);
            let owner = &self.name;
            let command = match step {
                Step::Write => command!("LOCK.ACQUIRE {key} {owner} {LEASE}"),
                Step::Read => command!("LOCK.RLOCK {key} {owner} {LEASE}"),
                Step::ReleaseWrite => command!("LOCK.RELEASE {key} {owner} WRITE"),
                Step::ReleaseRead => command!("LOCK.RELEASE {key} {owner} READ"),
                Step::Drop => command!("LOCK.RELEASE {key} {owner} ALL"),
                Step::Fence(to) => command!("LOCK.FENCE {key} {owner} {to}"),
            };
            let answer = match conn.try_run(&command) {
                Ok(Value::Int(answer)) => answer,
                Ok(other) => panic!("{step:?} of {known:?}: {other:?}"),
                Err(error) => {
                    assert!(error.starts_with("connection closed"), "{step:?}: {error}");
                    return;
                }
            };
            known.acknowledged = match step {
                Step::Write => (write + 1, read, answer),
                Step::Read => (write, read + 1, answer),
                Step::ReleaseWrite => after(write - 1, read, token),
                Step::ReleaseRead => after(write, read - 1, token),
                Step::Drop => (0, 0, 0),
                Step::Fence(to) => (write, read, to),
            };
            known.asked = None;
            self.highest = self.highest.max(known.acknowledged.2);
            steps.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Compares the server's state with the possible ones, and continues from there.
    fn check(&mut self, conn: &mut Conn) {
        for (key, known) in &mut self.keys {
            let info = lock_info(conn, key);
            let found = match info.as_ref().map(|info| &info.holds[..]) {
                None => (0, 0, 0),
                Some([hold]) => {
                    assert_eq!(hold.owner, self.name.as_bytes());
                    let lease = i64::try_from(LEASE).unwrap();
                    assert!(
                        (lease - 1_800_000..=lease).contains(&hold.lease),
                        "{hold:?}"
                    );
                    (hold.write, hold.read, hold.token)
                }
                Some(holds) => panic!("{key} has {holds:?}"),
            };
            assert!(known.allows(found), "{key}: {found:?} is not {known:?}");
            *known = Known {
                acknowledged: found,
                asked: None,
            };
            self.highest = self.highest.max(found.2);
        }
    }
}

#[test]
fn acknowledged_changes_survive_every_kill() {
    kill_again_and_again("yes");
}

#[test]
fn acknowledged_changes_survive_every_kill_with_an_aof_without_preamble() {
    kill_again_and_again("no");
}

fn kill_again_and_again(preamble: &str) {
    let mut server = Server::builder()
        .config("aof-use-rdb-preamble", preamble)
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .config("auto-aof-rewrite-percentage", "100")
        .config("auto-aof-rewrite-min-size", "32kb")
        .start();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| Arc::new(Mutex::new(Client::new(number))))
        .collect();
    let steps = Arc::new(AtomicU64::new(0));
    for kill in 0..kills() {
        let before = steps.load(Ordering::SeqCst);
        let stop = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = clients
            .iter()
            .map(|client| {
                let (client, steps, stop) =
                    (Arc::clone(client), Arc::clone(&steps), Arc::clone(&stop));
                let mut conn = server.connect();
                thread::spawn(move || client.lock().unwrap().run(&mut conn, &steps, &stop))
            })
            .collect();
        thread::sleep(Duration::from_micros(
            30_000 + u64::from(kill) * 7_919 % 90_000,
        ));
        eventually_within(PATIENCE, "enough has happened", || {
            steps.load(Ordering::SeqCst) >= before + STEPS
        });
        if kill % 3 == 1 {
            // During a rewrite, which may have begun by itself.
            let _ = try_cmd!(server.connect(), "BGREWRITEAOF");
        }
        server.sigkill();
        stop.store(true, Ordering::SeqCst);
        for thread in threads {
            thread.join().expect("the client saw nothing wrong");
        }
        server.start_again();
        let mut conn = server.connect();
        let mut highest = 0;
        for client in &clients {
            let mut client = client.lock().unwrap();
            client.check(&mut conn);
            highest = highest.max(client.highest);
        }
        // Of released locks only the token clock is left.
        let token = match cmd!(conn, "LOCK.ACQUIRE tokens t {LEASE}") {
            Value::Int(token) => token,
            other => panic!("{other:?}"),
        };
        assert!(token > highest, "{token} is not past {highest}");
        cmd!(conn, "LOCK.RELEASE tokens t");
    }
    let steps = steps.load(Ordering::SeqCst);
    assert!(
        steps > u64::from(kills()) * (STEPS - 1),
        "only {steps} steps"
    );
}
