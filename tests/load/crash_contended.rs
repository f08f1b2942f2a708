//! A server is killed at random moments while clients wait for one another's locks. When it comes back, a client that got a grant
//! is the holder, and no other client is.
//!
//! Ten kills a test, a thousand with `MORTISE_LONG=1`.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mortise_harness::redis::Value;
use mortise_harness::{Conn, Server, cmd, command, eventually_within, int, is_long_run, lock_info};

const CLIENTS: usize = 6;
/// Few enough that some clients always wait.
const KEYS: usize = 2;
const LEASE: u64 = 3_600_000;
/// Between two kills, at least.
const TURNS: usize = 21;
const HAND_OVERS: i64 = 11;
/// A shared disk is slow.
const PATIENCE: Duration = Duration::from_secs(60);

fn kills() -> usize {
    if is_long_run() { 1_000 } else { 10 }
}

/// Where a client was when the server died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    /// It requested the key and has no reply: it waits, or was granted.
    Asking(usize),
    /// It got the grant of the key, with this token.
    Holding(usize, i64),
    /// It has sent a release and got no reply.
    Releasing(usize, i64),
}

#[derive(Debug)]
struct Client {
    name: String,
    phase: Phase,
    /// All grants that it got.
    told: HashSet<(usize, i64)>,
    turns: usize,
}

/// The answer, or `None` if the server died meanwhile.
fn ask(conn: &mut Conn, command: &mortise_harness::redis::Cmd) -> Option<i64> {
    match conn.try_run(command) {
        Ok(Value::Int(answer)) => Some(answer),
        Ok(other) => panic!("{other:?}"),
        Err(error) => {
            assert!(error.starts_with("connection closed"), "{error}");
            None
        }
    }
}

impl Client {
    fn new(number: usize) -> Client {
        Client {
            name: format!("client-{number}"),
            phase: Phase::Idle,
            told: HashSet::new(),
            turns: 0,
        }
    }

    /// Acquires one key after the other, waiting for each, until the server dies or the test ends.
    fn run(&mut self, conn: &mut Conn, turns: &AtomicUsize, stop: &AtomicBool) -> Option<()> {
        let name = self.name.clone();
        self.phase = Phase::Idle;
        while !stop.load(Ordering::SeqCst) {
            let key = self.turns % KEYS;
            self.phase = Phase::Asking(key);
            let acquire = command!("LOCK.ACQUIRE", name_of(key), &name, LEASE, "WAIT", 0);
            let token = ask(conn, &acquire)?;
            self.phase = Phase::Holding(key, token);
            self.told.insert((key, token));
            self.turns += 1;
            turns.fetch_add(1, Ordering::SeqCst);
            if self.turns.is_multiple_of(3) {
                thread::sleep(Duration::from_millis(2));
            }
            // Most kills come while a client holds with a reply, and others wait.
            if stop.load(Ordering::SeqCst) {
                return Some(());
            }
            self.phase = Phase::Releasing(key, token);
            let release = command!("LOCK.RELEASE", name_of(key), &name, "TOKEN", token);
            assert_eq!(ask(conn, &release)?, 0);
            self.phase = Phase::Idle;
        }
        Some(())
    }
}

fn name_of(key: usize) -> String {
    format!("key-{key}")
}

/// The holder of the key, and the token.
fn holder(conn: &mut Conn, key: usize) -> Option<(String, i64)> {
    let info = lock_info(conn, name_of(key))?;
    let [hold] = &info.holds[..] else {
        panic!("{info:?}");
    };
    assert_eq!((hold.write, hold.read), (1, 0), "{info:?}");
    Some((String::from_utf8(hold.owner.clone()).unwrap(), hold.token))
}

/// Fails unless `found` is the client that got the grant of the key. If none did, it may be one that had requested the key, or one
/// without a reply to its release.
fn assert_was_promised(clients: &[Client], key: usize, found: Option<&(String, i64)>) {
    let told: Vec<_> = clients
        .iter()
        .filter_map(|client| match client.phase {
            Phase::Holding(of, token) if of == key => Some((client.name.clone(), token)),
            _ => None,
        })
        .collect();
    assert!(told.len() <= 1, "{told:?} hold key {key} together");
    if let Some(told) = told.first() {
        assert_eq!(found, Some(told), "key {key}");
        return;
    }
    let Some((name, token)) = found else { return };
    let client = clients.iter().find(|client| client.name == *name).unwrap();
    let highest = clients.iter().flat_map(|client| &client.told);
    let highest = highest.filter(|told| told.0 == key).map(|told| told.1);
    let may = match client.phase {
        Phase::Asking(of) => of == key && Some(*token) > highest.max(),
        Phase::Releasing(of, with) => (of, with) == (key, *token),
        Phase::Idle | Phase::Holding(..) => false,
    };
    assert!(may, "{found:?} holds key {key}: {client:?}");
}

/// Fails unless `found` has held the key at some time, or may hold it by a grant without a reply.
fn assert_was_once_true(clients: &[Client], key: usize, found: Option<&(String, i64)>) {
    let Some((name, token)) = found else { return };
    let client = clients.iter().find(|client| client.name == *name).unwrap();
    let may = client.told.contains(&(key, *token)) || client.phase == Phase::Asking(key);
    assert!(may, "{found:?} holds key {key}: {client:?}");
}

#[test]
fn a_client_that_got_its_grant_is_the_holder_after_every_kill() {
    kill_again_and_again("always", assert_was_promised);
}

/// Redis writes to the file before it replies, except while the disk lags: then it replies first, for up to two seconds.
#[test]
fn a_file_synced_every_second_restores_an_earlier_state_with_higher_tokens() {
    kill_again_and_again("everysec", assert_was_once_true);
}

type Check = fn(&[Client], usize, Option<&(String, i64)>);

fn kill_again_and_again(appendfsync: &str, check: Check) {
    let mut server = Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", appendfsync)
        .config("auto-aof-rewrite-percentage", "100")
        .config("auto-aof-rewrite-min-size", "32kb")
        .start();
    let mut clients: Vec<_> = (0..CLIENTS).map(Client::new).collect();
    let mut waited = 0;
    for kill in 0..kills() {
        let turns = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = clients
            .drain(..)
            .map(|mut client| {
                let (turns, stop) = (Arc::clone(&turns), Arc::clone(&stop));
                let mut conn = server.connect();
                thread::spawn(move || {
                    client.run(&mut conn, &turns, &stop);
                    client
                })
            })
            .collect();
        thread::sleep(Duration::from_micros(30_000 + kill as u64 * 7_919 % 90_000));
        waited += eventually_within(PATIENCE, "enough has happened", || {
            let handed_over = server.gauge("total_handoffs");
            let enough = turns.load(Ordering::SeqCst) >= TURNS && handed_over >= HAND_OVERS;
            enough.then_some(handed_over)
        });
        stop.store(true, Ordering::SeqCst);
        server.sigkill();
        let done = threads.into_iter().map(JoinHandle::join);
        clients.extend(done.map(|client| client.expect("the client saw nothing wrong")));
        server.start_again();
        let mut conn = server.connect();
        for key in 0..KEYS {
            let found = holder(&mut conn, key);
            check(&clients, key, found.as_ref());
            if let Some((name, _)) = found {
                cmd!(conn, "LOCK.RELEASE", name_of(key), name, "ALL");
            }
        }
        let told = clients.iter().flat_map(|client| &client.told);
        let highest = told.map(|told| told.1).max();
        // A key of its own: the file may have lost the release of an earlier one.
        let token = int(&cmd!(conn, "LOCK.ACQUIRE tokens-{kill} t {LEASE}"));
        assert!(Some(token) > highest, "{token} is not past {highest:?}");
        cmd!(conn, "LOCK.RELEASE tokens-{kill} t");
    }
    let turns: usize = clients.iter().map(|client| client.turns).sum();
    let enough = turns > kills() * (TURNS - 1) && waited > kills() as i64 * (HAND_OVERS - 1);
    assert!(enough, "only {turns} turns, {waited} of them waited for");
}
