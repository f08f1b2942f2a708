//! Clients of one rival that acquire locks for a while, and the result.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::clients::rivals::{Failure, Rival, Visitor};
use crate::clients::room::Room;
use crate::samples::Samples;

/// A lease that never runs out in a run.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// The load, the same for every rival.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) clients: usize,
    /// Whether all want the same lock, or each its own.
    pub(crate) same: bool,
    pub(crate) hold: Duration,
    pub(crate) think: Duration,
    pub(crate) span: Duration,
    /// After that, a client counts as stuck.
    pub(crate) patience: Duration,
}

/// The result of one round.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Acquired and released, a second.
    pub(crate) per_second: f64,
    /// Milliseconds until a lock was granted, and until it was released. A lock that was not granted counts with the patience.
    pub(crate) waits: Samples,
    pub(crate) pairs: Samples,
    /// Locks taken by the client that got the fewest, and by the one that got the most.
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) commands: f64,
    /// How often a crate reported that it did not get the lock, and how often it did not return at all.
    pub(crate) gave_up: f64,
    pub(crate) stuck: f64,
    /// How often two were inside at once.
    pub(crate) shared: f64,
}

/// The result of one client.
#[derive(Debug, Default)]
struct Log {
    /// How many were granted in time.
    had: usize,
    waits: Vec<f64>,
    pairs: Vec<f64>,
    gave_up: usize,
    stuck: usize,
}

impl Load {
    /// Runs the load. `commands` counts what the servers have run. `trouble` starts when every client has had the lock once, and
    /// lasts until the value that it returns is dropped.
    pub(crate) async fn run<T>(
        self,
        rival: Rival,
        servers: &[String],
        key: &str,
        commands: impl Fn() -> f64,
        trouble: impl FnOnce() -> T,
    ) -> Outcome {
        let new_room = || Arc::new(Room::new(self.hold));
        let one = new_room();
        let rooms: Vec<Arc<Room>> = (0..self.clients)
            .map(|_| match self.same {
                true => one.clone(),
                false => new_room(),
            })
            .collect();
        let (start, over) = (
            Arc::new(Barrier::new(self.clients + 1)),
            Arc::new(AtomicBool::new(false)),
        );
        let mut tasks = JoinSet::new();
        for (number, room) in rooms.iter().enumerate() {
            let key = match self.same {
                true => key.to_owned(),
                false => format!("{key}-{number}"),
            };
            let visitor = expect(rival, Visitor::connect(rival, servers, &key, LEASE).await);
            expect(rival, visitor.visit(room).await);
            let (room, start, over) = (room.clone(), start.clone(), over.clone());
            tasks.spawn(async move {
                start.wait().await;
                self.want(&visitor, &room, &over).await
            });
        }
        let trouble = trouble();
        let before = commands();
        start.wait().await;
        let began = Instant::now();
        tokio::time::sleep(self.span).await;
        over.store(true, Ordering::Relaxed);
        let elapsed = began.elapsed();
        let logs = tasks.join_all().await;
        let sent = commands() - before;
        drop(trouble);
        let shared = match self.same {
            true => rooms[0].shared(),
            false => rooms.iter().map(|room| room.shared()).sum(),
        };
        summary(logs, elapsed, sent, shared)
    }

    /// Acquires the lock repeatedly.
    async fn want(self, visitor: &Visitor, room: &Arc<Room>, over: &AtomicBool) -> Log {
        let mut log = Log::default();
        let patience = self.patience.as_secs_f64() * 1e3;
        // Counts from the first of several attempts: a client that gives up still wants the lock.
        let mut wanted = Instant::now();
        while !over.load(Ordering::Relaxed) {
            let before = wanted.elapsed();
            match within(self.patience, visitor.visit(room)).await {
                Some(Ok(visit)) => {
                    // A client that is granted after the end has waited, too.
                    log.had += usize::from(!over.load(Ordering::Relaxed));
                    log.waits.push((before + visit.wait).as_secs_f64() * 1e3);
                    log.pairs.push((before + visit.whole).as_secs_f64() * 1e3);
                }
                Some(Err(_)) => {
                    log.gave_up += 1;
                    if !over.load(Ordering::Relaxed) {
                        continue;
                    }
                    log.waits.push(wanted.elapsed().as_secs_f64() * 1e3);
                }
                None => {
                    log.waits.push(patience);
                    log.pairs.push(patience);
                    log.stuck += 1;
                }
            }
            if !self.think.is_zero() {
                tokio::time::sleep(self.think).await;
            }
            wanted = Instant::now();
        }
        log
    }
}

fn summary(logs: Vec<Log>, elapsed: Duration, sent: f64, shared: usize) -> Outcome {
    let had = |log: &Log| log.had as f64;
    let served: Samples = logs.iter().map(had).collect();
    let total: f64 = logs.iter().map(had).sum();
    let sum = |count: fn(&Log) -> usize| logs.iter().map(count).sum::<usize>() as f64;
    // If nobody got the lock, all waited for the whole time.
    let all = |of: fn(&Log) -> &Vec<f64>| -> Samples {
        let figures: Vec<f64> = logs.iter().flat_map(of).copied().collect();
        match figures.is_empty() {
            true => Samples::from(elapsed.as_secs_f64() * 1e3),
            false => figures.into_iter().collect(),
        }
    };
    Outcome {
        per_second: total / elapsed.as_secs_f64(),
        waits: all(|log| &log.waits),
        pairs: all(|log| &log.pairs),
        least: served.min(),
        most: served.max(),
        commands: sent / total.max(1.0),
        gave_up: sum(|log| log.gave_up),
        stuck: sum(|log| log.stuck),
        shared: shared as f64,
    }
}

/// `None` if it takes longer than `patience`.
pub(crate) async fn within<T>(patience: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(patience, work).await.ok()
}

/// An operation that must not fail, because all servers are up and nobody else wants the lock.
pub(crate) fn expect<T>(rival: Rival, result: Result<T, Failure>) -> T {
    result.unwrap_or_else(|error| panic!("{}: {error}", rival.name()))
}
