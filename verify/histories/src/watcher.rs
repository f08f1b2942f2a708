//! Reads the locks continuously, by `LOCK.INFO`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mortise_harness::redis::Value;
use mortise_harness::{LockInfo, command, is_nil};

use crate::client::{Place, Wire};
use crate::history::{Log, Mode, Record, Seen, SeenHold, SeenRequest, now};
use crate::setup::{Primary, View};

const REPLY: Duration = Duration::from_secs(1);
/// How often each lock is read.
const EVERY: Duration = Duration::from_millis(20);

pub(crate) struct Watcher {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    pub(crate) fn start(view: View, keys: Vec<String>, file: &Path) -> std::io::Result<Watcher> {
        let over = Arc::new(AtomicBool::new(false));
        let (log, ends) = (Log::create(file)?, over.clone());
        let thread = thread::spawn(move || match view {
            View::Nowhere => {}
            View::Primary(primary) => watch_primary(&primary, &keys, &log, &ends),
            View::Cluster(ports) => watch_cluster(&ports, &keys, &log, &ends),
        });
        Ok(Watcher {
            over,
            thread: Some(thread),
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads all locks at the primary, over one connection until another server is.
fn watch_primary(primary: &Primary, keys: &[String], log: &Log, over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        let port = primary.port();
        let mut wire = Wire::new(Place::One(port));
        while primary.port() == port && !over.load(Ordering::SeqCst) {
            for key in keys {
                look(&mut wire, key, log);
            }
            thread::sleep(EVERY);
        }
    }
}

/// Reads each lock at the node that has it.
fn watch_cluster(ports: &[u16], keys: &[String], log: &Log, over: &AtomicBool) {
    let wire = |key| (key, Wire::new(Place::Cluster(ports.to_owned())));
    let mut wires: Vec<(&String, Wire)> = keys.iter().map(wire).collect();
    while !over.load(Ordering::SeqCst) {
        for (key, wire) in &mut wires {
            look(wire, key, log);
        }
        thread::sleep(EVERY);
    }
}

/// Reads a lock, if the server shows it.
fn look(wire: &mut Wire, key: &str, log: &Log) {
    let sent = now();
    let question = command!("LOCK.INFO", key, "COUNT", 1_000);
    if let Ok(reply) = wire.call(&question, REPLY) {
        log.write(&Record::Seen(seen(key, sent, &reply)));
    }
}

fn seen(key: &str, sent: u64, reply: &Value) -> Seen {
    let at = now();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (mut holds, mut queue) = (Vec::new(), Vec::new());
    if !is_nil(reply) {
        let info = LockInfo::read(reply);
        queue.extend(info.queue.iter().map(|request| SeenRequest {
            owner: text(&request.owner),
            // The server counts whole milliseconds of its clock, so one more than have passed.
            waited: (request.waited - 1).max(0).cast_unsigned() * 1_000_000,
        }));
        holds.extend(info.holds.iter().map(|hold| SeenHold {
            owner: text(&hold.owner),
            mode: if hold.write > 0 {
                Mode::Write
            } else {
                Mode::Read
            },
            weight: hold.read.cast_unsigned(),
            token: hold.token.cast_unsigned(),
        }));
    }
    Seen {
        key: key.to_owned(),
        sent,
        at,
        holds,
        queue,
    }
}
