//! Clients that acquire several keys at once with LOCK.MACQUIRE and release them at once: a transaction that reads all keys, on any server
//! and at any time, finds that each owner holds all of its keys or none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redis::Cmd;

use crate::conn::Conn;
use crate::dice::Dice;
use crate::lock::LockInfo;
use crate::value::{array, is_nil};

/// Running clients. They end when this value is dropped.
#[derive(Debug)]
pub struct Bundles {
    stop: Arc<AtomicBool>,
    grants: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

/// The keys, all in one slot.
fn key(number: u64) -> String {
    format!("{{bundles}}{number}")
}

impl Bundles {
    /// How many keys there are.
    pub const KEYS: u64 = 8;

    /// Starts this many clients of the server on `port`. Each repeatedly acquires 2 to 4 keys, for a minute, and ends when its
    /// connection is closed.
    pub fn start(port: u16, clients: usize) -> Bundles {
        let stop = Arc::new(AtomicBool::new(false));
        let grants = Arc::new(AtomicU64::new(0));
        let run = |number: usize| {
            let (stop, grants) = (Arc::clone(&stop), Arc::clone(&grants));
            thread::spawn(move || {
                let Ok(mut conn) = Conn::to_port(port) else {
                    return;
                };
                let mut dice = Dice::new(number as u64);
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    let taken = take_and_give_back(&mut conn, &mut dice, number, round);
                    match taken {
                        Ok(()) => grants.fetch_add(1, Ordering::Relaxed),
                        // The server stops being a primary, or ends.
                        Err(_) => return,
                    };
                }
            })
        };
        let threads = (0..clients).map(run).collect();
        Bundles {
            stop,
            grants,
            threads,
        }
    }

    /// How often all keys of a request were granted.
    pub fn grants(&self) -> u64 {
        self.grants.load(Ordering::Relaxed)
    }

    /// Fails unless each owner holds all of its keys, or none, at one moment on the server of `conn`. Returns how
    /// many owners hold.
    ///
    /// # Panics
    /// If an owner holds some of its keys.
    #[track_caller]
    pub fn assert_whole(conn: &mut Conn) -> usize {
        let mut look = vec![crate::command!("MULTI")];
        look.extend((0..Self::KEYS).map(|number| crate::command!("LOCK.INFO", key(number))));
        look.push(crate::command!("EXEC"));
        let replies = conn.pipeline(&look);
        let replies = replies.last().expect("EXEC is answered");
        let replies = array(replies.as_ref().expect("the transaction is run"));
        let mut held: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for info in replies.iter().filter(|info| !is_nil(info)) {
            for hold in LockInfo::read(info).holds {
                let owner = String::from_utf8_lossy(&hold.owner).into_owned();
                held.entry(owner).or_default().push(hold.token);
            }
        }
        for (owner, tokens) in &held {
            let (wanted, _) = owner.split_once(':').expect("its number of keys");
            assert_eq!(
                tokens.len().to_string(),
                wanted,
                "{owner} holds a part: {held:?}"
            );
            assert!(
                tokens.iter().all(|token| token == &tokens[0]),
                "{owner}: {held:?}"
            );
        }
        held.len()
    }

    /// Lets the clients finish.
    ///
    /// # Panics
    /// If one of them panicked.
    pub fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("the client did not panic");
        }
    }
}

impl Drop for Bundles {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn take_and_give_back(
    conn: &mut Conn,
    dice: &mut Dice,
    client: usize,
    round: u64,
) -> Result<(), String> {
    let count = 2 + dice.roll(3);
    let first = dice.roll(Bundles::KEYS);
    let step = 1 + 2 * dice.roll(Bundles::KEYS / 2);
    let keys: Vec<_> = (0..count)
        .map(|nth| key((first + nth * step) % Bundles::KEYS))
        .collect();
    let owner = format!("{count}:{client}:{round}");
    let take = crate::command!("LOCK.MACQUIRE", &owner, 60_000, count, &keys, "WAIT", 0);
    if is_nil(&conn.try_run(&take)?) {
        return Err("denied".to_owned());
    }
    if dice.roll(4) == 0 {
        thread::sleep(Duration::from_millis(dice.roll(3)));
    }
    let release = |key: &String| crate::command!("LOCK.RELEASE", key, &owner);
    let mut steps: Vec<Cmd> = vec![crate::command!("MULTI")];
    steps.extend(keys.iter().map(release));
    steps.push(crate::command!("EXEC"));
    for step in &steps {
        conn.try_send_raw(&step.get_packed_command())
            .map_err(|error| error.to_string())?;
    }
    for _ in &steps {
        conn.try_recv()?;
    }
    Ok(())
}
