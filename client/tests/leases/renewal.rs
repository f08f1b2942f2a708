//! How a guard is renewed, how it is lost, and what its client then still sends.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use mortise_client::{BootInstant, Client, Error, Loss};
use mortise_harness::{Server, cmd};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use crate::support::proxy::{Proxy, Traffic};
use crate::support::{
    self, LATE, PATIENCE, assert_lost, await_free, client, client_within, eventually,
    eventually_in, ms, start, start_behind_proxy,
};

/// A client that gives up no request within the leases of these tests.
async fn patient_client(url: &str) -> Client {
    client_within(url, Duration::from_secs(60)).await
}

#[tokio::test]
async fn a_guard_is_renewed_for_as_long_as_it_lives() {
    let (_server, client) = start().await;
    let guard = client.lock("k").lease(ms(3_000)).acquire().await.unwrap();
    let (token, first) = (guard.token(), guard.deadline());
    eventually("it outlives its first lease", async || {
        assert!(guard.is_valid() && guard.token() == token);
        first.elapsed() > ms(1_500)
    })
    .await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_short_lease_is_renewed_though_the_client_took_a_longer_one_before() {
    let server = Server::start();
    let minute = Duration::from_secs(60);
    // On a busy machine some are lost.
    for _ in 0..5 {
        let client = client(&server).await;
        let long = client.lock("long").lease(minute).acquire().await.unwrap();
        let short = client.lock("short").lease(ms(300));
        let short = short.acquire().await.unwrap();
        let end = short.deadline();
        eventually("it is renewed or lost", async || {
            short.deadline() > end || !short.is_valid()
        })
        .await;
        if short.is_valid() {
            return;
        }
        long.release().await.unwrap();
        await_free(&client, "short").await;
    }
    panic!("none was renewed");
}

#[tokio::test]
async fn a_guard_without_renewal_is_lost_at_its_deadline_before_the_server_ends_the_lease() {
    let (_server, client) = start().await;
    let lock = client.lock("k").lease(ms(400)).auto_renew(false);
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.lost().await, Loss::Expired);
    assert!(!guard.is_valid() && guard.deadline().elapsed() < LATE);
    let renewed = guard.renew().await;
    assert_lost(renewed, Loss::Expired);
    let released = guard.release().await;
    assert_lost(released, Loss::Expired);
}

#[tokio::test]
async fn a_guard_is_lost_at_its_deadline_when_the_server_is_frozen_or_killed() {
    let mut server = Server::start();
    let client = patient_client(&server.url()).await;
    let lock = client.lock("k").lease(ms(500));
    let guard = lock.clone().acquire().await.unwrap();
    server.stop_signal();
    assert_eq!(guard.lost().await, Loss::Expired);
    assert!(guard.deadline().elapsed() < LATE && !guard.is_valid());
    server.cont_signal();
    // It stays lost, though the server may still keep the hold.
    await_free(&client, "k").await;
    assert_eq!(guard.loss(), Some(Loss::Expired));
    let guard = lock.acquire().await.unwrap();
    server.sigkill();
    assert_eq!(guard.lost().await, Loss::Expired);
    let started = Instant::now();
    assert_lost(guard.release().await, None);
    assert!(started.elapsed() < LATE);
}

#[tokio::test]
async fn a_guard_outlives_a_connection_that_is_cut() {
    let (_server, proxy, client) = start_behind_proxy().await;
    let guard = client.lock("k").lease(ms(6_000)).acquire().await.unwrap();
    let first = guard.deadline();
    proxy.set(Traffic::Cut);
    let is_overdue = async || first.remaining() < ms(3_600);
    eventually("a renewal has failed", is_overdue).await;
    proxy.set(Traffic::Flows);
    let is_over = async || first.remaining().is_zero();
    eventually("the first lease is over", is_over).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_guard_behind_a_broken_network_is_lost_before_another_client_has_the_lock() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let holder = patient_client(&proxy.url()).await;
    let other = client(&server).await;
    let guard = holder.lock("k").lease(ms(2000)).acquire().await.unwrap();
    proxy.set(Traffic::Stalls);
    let lock = other.lock("k");
    let (lost, taking) = (pin!(guard.lost()), pin!(lock.clone().acquire()));
    match select(lost, taking).await {
        Either::Left((loss, taking)) => {
            assert_eq!(loss, Loss::Expired);
            assert!(BootInstant::now() >= guard.deadline(), "lost too early");
            assert!(taking.await.unwrap().token() > guard.token());
        }
        Either::Right(_) => {
            panic!("another client has the lock before the first one noticed the loss")
        }
    }
}

#[tokio::test]
async fn work_under_a_lock_is_stopped_before_another_client_has_it() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let holder = patient_client(&proxy.url()).await;
    let other = client(&server).await;
    let (sender, mut events) = mpsc::unbounded_channel();
    let (lock, stopped) = (holder.lock("k").lease(ms(2000)), sender.clone());
    tokio::spawn(async move {
        let work = |_| async move {
            stopped.send("started").unwrap();
            let _stopped = SendsOnDrop("stopped", stopped);
            std::future::pending::<Result<(), Error>>().await
        };
        lock.clone().run(work).await
    });
    assert_eq!(events.recv().await, Some("started"));
    proxy.set(Traffic::Stalls);
    let _guard = other.lock("k").acquire().await.unwrap();
    sender.send("granted to another").unwrap();
    assert_eq!(events.recv().await, Some("stopped"));
    assert_eq!(events.recv().await, Some("granted to another"));
}

/// Sends a word when it is dropped.
struct SendsOnDrop(&'static str, mpsc::UnboundedSender<&'static str>);

impl Drop for SendsOnDrop {
    fn drop(&mut self) {
        let _ = self.1.send(self.0);
    }
}

#[tokio::test]
async fn a_release_that_could_not_be_sent_is_sent_later() {
    let (server, proxy, client) = start_behind_proxy().await;
    let direct = support::client(&server).await;
    let guard = client.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    proxy.set(Traffic::Cut);
    assert!(matches!(
        guard.release().await,
        Err(Error::Connection { .. })
    ));
    assert!(direct.info("k").await.unwrap().is_some());
    proxy.set(Traffic::Flows);
    await_free(&direct, "k").await;
}

#[tokio::test]
async fn a_hold_ends_at_its_cap_however_often_it_is_renewed() {
    let (_server, client) = start().await;
    let lock = client.lock("k").lease(ms(3000)).max_hold(ms(5000));
    let started = Instant::now();
    let guard = lock.clone().acquire().await.unwrap();
    assert_eq!(guard.lost().await, Loss::HoldLimit);
    let held = started.elapsed();
    assert!(held > ms(4900) && held < ms(5000) + LATE, "{held:?}");
    await_free(&client, "k").await;
}

#[tokio::test]
async fn every_future_that_awaits_the_loss_of_a_guard_is_woken() {
    let (server, client) = start().await;
    let guard = client.lock("k").lease(ms(3000)).acquire().await.unwrap();
    let (first, second) = (guard.lost(), guard.lost());
    cmd!(server.connect(), "DEL", "k");
    assert_eq!(tokio::join!(first, second), (Loss::Denied, Loss::Denied));
    assert!(!guard.is_valid());
    let released = client.lock("k").acquire().await.unwrap();
    let watch = released.lost();
    released.release().await.unwrap();
    assert_eq!(watch.await, Loss::Released);
}

#[tokio::test]
async fn ten_thousand_guards_are_renewed_by_a_few_pipelines() {
    const GUARDS: usize = 10_000;
    let server = Server::start();
    // A busy machine takes long for all of them at once.
    let client = client_within(server.url(), ms(60_000)).await;
    let lease = ms(20_000);
    let mut taking = tokio::task::JoinSet::new();
    for n in 0..GUARDS {
        let lock = client.lock(format!("k{n}")).lease(lease);
        taking.spawn(async move { lock.acquire().await.unwrap() });
    }
    let guards = taking.join_all().await;
    let reads = || -> u64 {
        let stats = server.info("stats");
        stats["total_reads_processed"].parse().unwrap()
    };
    let renewals = || server.calls("lock.renew");
    let (reads_before, renewals_before) = (reads(), renewals());
    let began = Instant::now();
    while renewals() - renewals_before < 2 * GUARDS as u64 {
        assert!(began.elapsed() < 3 * lease, "not all are renewed twice");
        // To look costs the server a few reads, too.
        tokio::time::sleep(ms(500)).await;
    }
    let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
    assert_eq!(lost, 0, "guards were lost");
    // The server reads a pipeline in a few pieces of 16 kB; single commands would take a read each. Renewing twice in a
    // period, a third of a lease, would double the commands.
    let (reads, renewals) = (reads() - reads_before, renewals() - renewals_before);
    let periods = began.elapsed().as_secs() / (lease / 3).as_secs() + 2;
    assert!(renewals <= periods * GUARDS as u64, "{renewals}");
    assert!(
        reads < renewals / 10,
        "{reads} reads for {renewals} renewals"
    );
    drop(guards);
}

#[tokio::test]
async fn a_renewal_behind_stuck_requests_succeeds_over_another_connection() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    // Other requests may take long, and some are always pending.
    let client = patient_client(&proxy.url()).await;
    let guard = client.lock("k").lease(ms(6_000)).acquire().await.unwrap();
    let first = guard.deadline();
    let asking = tokio::spawn({
        let client = client.clone();
        async move {
            loop {
                let _ = tokio::time::timeout(ms(20), client.info("other")).await;
            }
        }
    });
    proxy.set(Traffic::StallsOld);
    eventually_in(3 * PATIENCE, "it outlives its first lease", async || {
        assert!(guard.is_valid(), "{guard:?}");
        first.remaining().is_zero() && guard.deadline() > first
    })
    .await;
    asking.abort();
}

#[tokio::test]
async fn a_request_that_times_out_fails_alone_and_no_other_request_gets_its_late_reply() {
    let (_server, proxy, client) = start_behind_proxy().await;
    let guard = client.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    proxy.set(Traffic::Stalls);
    let silence = client.info("k").await.unwrap_err();
    assert!(silence.is_transient(), "{silence:?}");
    proxy.set(Traffic::Flows);
    assert!(client.info("other").await.unwrap().is_none());
    assert!(client.info("k").await.unwrap().is_some());
    guard.release().await.unwrap();
}

#[test]
fn a_guard_whose_runtime_is_gone_is_lost_because_nobody_renews_it() {
    let server = Server::start();
    let runtime = Runtime::new().unwrap();
    let guard = runtime.block_on(async {
        let client = client(&server).await;
        client.lock("k").lease(ms(60_000)).acquire().await.unwrap()
    });
    let (sender, lost) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // A runtime without timers.
        let elsewhere = Builder::new_current_thread().build().unwrap();
        sender.send(elsewhere.block_on(guard.lost()))
    });
    drop(runtime);
    assert_eq!(lost.recv_timeout(PATIENCE), Ok(Loss::Expired));
}
