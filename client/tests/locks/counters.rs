//! The counters that the client reports to an application's recorder.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    set_default_local_recorder,
};
use mortise_harness::{Server, cmd, int};

use crate::support::quorum::Servers;
use crate::support::{await_waiters, client, eventually, ms};

#[derive(Default)]
struct Counters(Mutex<HashMap<String, Arc<AtomicU64>>>);

impl Counters {
    fn get(&self, name: &str) -> u64 {
        let counters = self.0.lock().unwrap();
        let counter = counters.get(&format!("mortise_client_{name}_total"));
        counter.map_or(0, |it| it.load(Ordering::Relaxed))
    }
}

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let mut counters = self.0.lock().unwrap();
        let counter = counters.entry(key.name().to_owned()).or_default();
        Counter::from_arc(counter.clone())
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

// All tasks of the test run on this thread, which has the recorder.
#[tokio::test]
async fn acquisitions_waits_renewals_and_losses_are_counted() {
    let counters = Counters::default();
    let _recorder = set_default_local_recorder(&counters);
    let server = Server::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(ms(4_500));
    let first = lock.acquire().await.unwrap();
    assert_eq!((counters.get("acquired"), counters.get("waited")), (1, 0));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    await_waiters(&client, "k", 1).await;
    eventually("it is renewed", || async { counters.get("renewed") > 0 }).await;
    first.release().await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    assert_eq!((counters.get("acquired"), counters.get("waited")), (2, 1));
    assert_eq!(counters.get("lost"), 0);
    cmd!(server.connect(), "DEL", "k");
    let _ = second.lost().await;
    assert_eq!(counters.get("lost"), 1);
}

#[tokio::test]
async fn the_loss_of_a_lock_over_three_servers_is_counted_once() {
    let counters = Counters::default();
    let _recorder = set_default_local_recorder(&counters);
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    let lock = quorum.lock("k").lease(ms(60_000));
    let guard = lock.acquire().await.unwrap();
    let connections = servers.0.iter().map(Server::connect);
    for mut server in connections {
        cmd!(server, "DEL", "k");
    }
    guard.renew().await.unwrap_err();
    let _ = guard.lost().await;
    assert_eq!(counters.get("lost"), 1);
}

#[tokio::test]
async fn a_lock_that_was_never_won_is_not_counted_as_lost() {
    let counters = Counters::default();
    let _recorder = set_default_local_recorder(&counters);
    let mut servers = Servers::start(3);
    let mut quorums = Vec::new();
    for _ in 0..100 {
        let quorum = servers.builder().node_timeout(ms(2_000));
        quorums.push(quorum.build().unwrap());
    }
    servers.0[2].sigkill();
    let mut ahead = servers.0[1].connect();
    let mut behind = servers.0[0].connect();
    let is_over = Arc::new(AtomicBool::new(false));
    let deleting = thread::spawn({
        let is_over = is_over.clone();
        move || {
            while !is_over.load(Ordering::Relaxed) {
                cmd!(behind, "DEL", "k");
            }
        }
    });
    for quorum in &quorums {
        // The tokens of the two servers differ, so the lower one needs a FENCE, and often has nothing left to raise.
        let token = int(&cmd!(ahead, "LOCK.ACQUIRE", "push", "x", 1000));
        cmd!(ahead, "LOCK.FENCE", "push", "x", token + 9_000);
        let _ = quorum.lock("k").try_acquire().await;
    }
    is_over.store(true, Ordering::Relaxed);
    deleting.join().unwrap();
    let (won, lost) = (counters.get("acquired"), counters.get("lost"));
    assert!(won < 100, "none was deleted in time");
    assert!(lost <= won, "{lost} lost of {won}");
}
