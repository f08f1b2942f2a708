//! Reads the locks continuously, by `LOCK.INFO`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mortise_harness::redis::Value;
use mortise_harness::{Conn, LockInfo, command, is_nil};

use crate::history::{Log, Mode, Record, Seen, SeenHold, now};
use crate::setup::View;

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
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::SeqCst) {
                if let Some(port) = view.port() {
                    watch(&view, port, &keys, &log, &ends);
                }
                thread::sleep(EVERY);
            }
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

/// Reads until the connection ends, or the locks are elsewhere.
fn watch(view: &View, port: u16, keys: &[String], log: &Log, over: &AtomicBool) {
    let Ok(mut conn) = Conn::to_port(port) else {
        return;
    };
    while view.port() == Some(port) && !over.load(Ordering::SeqCst) {
        for key in keys {
            let sent = now();
            let question = command!("LOCK.INFO", key, "COUNT", 1_000);
            if conn.try_send_raw(&question.get_packed_command()).is_err() {
                return;
            }
            let Some(Ok(reply)) = conn.recv_within(REPLY) else {
                return;
            };
            log.write(&Record::Seen(seen(key, sent, &reply)));
        }
        thread::sleep(EVERY);
    }
}

fn seen(key: &str, sent: u64, reply: &Value) -> Seen {
    let at = now();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (mut holds, mut queue) = (Vec::new(), Vec::new());
    if !is_nil(reply) {
        let info = LockInfo::read(reply);
        queue.extend(info.queue.iter().map(|request| text(&request.owner)));
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
