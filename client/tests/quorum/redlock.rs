//! What the Redlock algorithm requires, point by point: "Distributed Locks with Redis" in the Redis documentation. The
//! last point, fencing, is in `redlock_tokens.rs`.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use mortise_client::{BootInstant, Error, Guard, Loss, Owner, Quorum};
use mortise_harness::{Server, cmd};

use crate::support::quorum::{Servers, connect, quorum_of, quorum_within};
use crate::support::{LATE, assert_invalid, assert_lost, await_free, client, eventually, ms};

#[tokio::test]
async fn requirement_1_the_servers_must_be_independent_of_an_odd_number_and_distinct() {
    for count in [1, 3, 5] {
        let (servers, quorum) = quorum_of(count).await;
        let guard = quorum.lock("k").acquire().await.unwrap();
        assert!(servers.taken("k").len() > count / 2);
        guard.release().await.unwrap();
        servers.await_free("k").await;
    }
    let even = ["redis://a/", "redis://b/"];
    assert_invalid(Quorum::builder(even));
    let twice = ["redis://a/", "redis://b/", "redis://a/"];
    assert_invalid(Quorum::builder(twice));
}

#[tokio::test]
async fn requirement_2_the_owner_is_unique_per_client_and_request() {
    let (_servers, quorum) = quorum_of(3).await;
    let owner = Owner::named("worker:1").unwrap();
    let lock = quorum.lock("k").owner(&owner);
    let first = lock.clone().acquire().await.unwrap();
    let name = first.owner().to_owned();
    assert!(name.starts_with(b"worker:1#"));
    first.release().await.unwrap();
    let second = lock.clone().acquire().await.unwrap();
    assert_ne!(second.owner(), name);
}

#[tokio::test]
async fn requirement_3_acquiring_sets_if_absent_and_releasing_checks_the_owner() {
    let (servers, quorum) = quorum_of(3).await;
    servers.occupy(&[0, 1, 2], "k", 60_000);
    assert!(quorum.lock("k").try_acquire().await.unwrap().is_none());
    assert_eq!(servers.taken("k"), [0, 1, 2], "somebody else's holds");
    servers.vacate(&[0, 1, 2], "k");
    let guard = quorum.lock("k").acquire().await.unwrap();
    for server in &servers.0 {
        cmd!(server.connect(), "DEL", "k");
    }
    servers.occupy(&[0, 1, 2], "k", 60_000);
    assert_lost(guard.release().await, None);
    assert_eq!(servers.taken("k"), [0, 1, 2]);
}

#[tokio::test]
async fn requirement_4_the_lease_is_counted_from_before_the_first_request() {
    let (servers, quorum) = quorum_within(3, ms(5000)).await;
    let lock = quorum.lock("k").lease(ms(60_000)).auto_renew(false);
    // The kernel accepts the request for every server, which replies half a second later.
    servers.0.iter().for_each(Server::stop_signal);
    let asked = BootInstant::now();
    let (guard, ()) = tokio::join!(lock.clone().acquire(), async {
        tokio::time::sleep(ms(500)).await;
        servers.0.iter().for_each(Server::cont_signal);
    });
    let guard = guard.unwrap();
    assert!(asked.elapsed() >= ms(500));
    assert!(guard.deadline() + ms(400) < BootInstant::now() + ms(60_000 - 600));
}

#[tokio::test]
async fn requirement_5_all_servers_are_asked_at_once_with_the_same_key_and_owner() {
    let (servers, quorum) = quorum_of(5).await;
    let guard = quorum.lock("k").acquire().await.unwrap();
    servers.await_granted("k").await;
    for client in servers.clients().await {
        let info = client.info("k").await.unwrap().unwrap();
        assert_eq!(info.holds[0].owner, guard.owner());
    }
}

#[tokio::test]
async fn requirement_6_a_paused_or_dead_minority_costs_nothing_once_the_majority_has_answered() {
    let node_timeout = ms(8000);
    let (mut servers, quorum) = quorum_within(5, node_timeout).await;
    let lock = quorum.lock("k").lease(node_timeout * 5);
    let serve = async || {
        let started = Instant::now();
        for _ in 0..5 {
            let guard = lock.clone().acquire().await.unwrap();
            guard.renew().await.unwrap();
            guard.release().await.unwrap();
        }
        assert!(started.elapsed() < node_timeout, "{:?}", started.elapsed());
    };
    servers.0[0].stop_signal();
    servers.0[3].stop_signal();
    serve().await;
    servers.0[0].cont_signal();
    servers.0[3].cont_signal();
    // The releases follow the requests that they had not read.
    servers.await_free("k").await;
    servers.0[1].sigkill();
    servers.0[4].sigkill();
    serve().await;
}

#[tokio::test]
async fn requirement_7_without_a_majority_there_is_no_lock_and_the_error_names_the_reason_of_each_server()
 {
    let (mut servers, quorum) = quorum_within(5, ms(1000)).await;
    servers.0[0].sigkill();
    servers.0[1].stop_signal();
    servers.occupy(&[2], "k", 60_000);
    servers.0[4].sigkill();
    let error = quorum.lock("k").wait(ms(1500)).acquire().await.unwrap_err();
    let granted = matches!(
        error,
        Error::NoQuorum {
            needed: 3,
            granted: 0..=1,
            ..
        }
    );
    assert!(granted, "{error:?}");
    let reason = |n: usize| servers.reason(&error, n);
    let is_silent = |n: usize| match reason(n) {
        Some(Error::Connection { error, .. }) => error.is_timeout(),
        other => panic!("{other:?}"),
    };
    assert!(!is_silent(0) && is_silent(1), "{error}");
    assert!(reason(2).is_some_and(Error::is_busy), "{error}");
    servers.0[1].cont_signal();
}

#[tokio::test]
async fn requirement_7_a_lease_that_could_end_before_the_servers_reply_is_refused() {
    let servers = Servers::start(3);
    let quorum = connect(servers.urls(), ms(50)).await;
    assert_invalid(quorum.lock("k").lease(ms(199)).acquire().await);
    assert!(quorum.lock("k").lease(ms(200)).acquire().await.is_ok());
}

#[tokio::test]
async fn requirement_8_validity_is_the_lease_less_the_time_that_has_passed_and_the_drift() {
    let (_servers, quorum) = quorum_of(3).await;
    let before = BootInstant::now();
    let lock = quorum.lock("k").lease(ms(10_000)).auto_renew(false);
    let guard = lock.acquire().await.unwrap();
    let after = BootInstant::now();
    let validity = ms(10_000 - 100 - 2);
    assert!(guard.deadline() >= before + validity && guard.deadline() <= after + validity);
}

#[tokio::test]
async fn requirement_9_a_failed_round_releases_on_all_servers_even_without_a_reply() {
    let (servers, quorum) = quorum_within(5, ms(200)).await;
    servers.occupy(&[0, 1, 2], "k", 60_000);
    servers.0[4].stop_signal();
    assert!(!matches!(quorum.lock("k").try_acquire().await, Ok(Some(_))));
    servers.0[4].cont_signal();
    for n in [3, 4] {
        let client = client(&servers.0[n]).await;
        await_free(&client, "k").await;
        tokio::time::sleep(ms(20)).await;
        assert_eq!(client.info("k").await.unwrap(), None);
    }
}

#[tokio::test]
async fn requirement_10_competing_clients_are_all_granted_one_at_a_time() {
    let servers = Servers::start(3);
    let mut work = tokio::task::JoinSet::new();
    static INSIDE: AtomicU64 = AtomicU64::new(0);
    static LAST: AtomicU64 = AtomicU64::new(0);
    for _ in 0..6 {
        let quorum = servers.quorum_with(ms(1_000)).await;
        work.spawn(async move {
            for _ in 0..8 {
                let guard = quorum.lock("k").lease(ms(4000)).acquire().await.unwrap();
                assert_eq!(INSIDE.fetch_add(1, SeqCst), 0, "two are inside");
                let token = guard.token().get();
                assert!(LAST.swap(token, SeqCst) < token, "a token has gone back");
                tokio::task::yield_now().await;
                assert_eq!(INSIDE.fetch_sub(1, SeqCst), 1);
                guard.release().await.unwrap();
            }
        });
    }
    let all = tokio::time::timeout(ms(20_000), work.join_all()).await;
    assert!(all.is_ok(), "somebody has waited for 20 seconds");
}

#[tokio::test]
async fn requirement_11_a_lock_can_be_released_even_after_its_loss() {
    let (servers, quorum) = quorum_within(3, ms(100)).await;
    let lock = quorum.lock("k").lease(ms(400)).auto_renew(false);
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.lost().await, Loss::Expired);
    assert_lost(guard.release().await, Loss::Expired);
    servers.await_free("k").await;
}

#[tokio::test]
async fn requirement_11_a_release_fails_if_a_majority_no_longer_had_the_lock() {
    let (servers, quorum) = quorum_within(3, ms(5_000)).await;
    let lock = quorum.lock("k").lease(ms(60_000)).auto_renew(false);
    let guard = lock.clone().acquire().await.unwrap();
    // The third grant may come after two have made the lock.
    eventually("all three are in the hold", async || {
        guard.renew().await.unwrap();
        servers
            .0
            .iter()
            .all(|server| server.calls("LOCK.RENEW") > 0)
    })
    .await;
    for server in &servers.0[..2] {
        cmd!(server.connect(), "DEL", "k");
    }
    assert!(guard.is_valid(), "the client has not asked since");
    assert_lost(guard.release().await, Loss::Denied);
    servers.await_free("k").await;
}

/// When the work is cancelled, sends how long ago its lock's deadline passed.
struct End(Guard, std::sync::mpsc::Sender<Duration>);

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.1.send(self.0.deadline().elapsed());
    }
}

#[tokio::test]
async fn requirement_12_the_work_ends_within_the_validity() {
    let (servers, quorum) = quorum_within(3, ms(100)).await;
    let lock = quorum.lock("k").lease(ms(600));
    let (sender, ended) = std::sync::mpsc::channel();
    let error = lock
        .run(|guard| async {
            let _end = End(guard, sender);
            servers.0[0].stop_signal();
            servers.0[1].stop_signal();
            std::future::pending::<Result<(), Error>>().await
        })
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Lost(Loss::Expired)), "{error:?}");
    let late = ended.recv().unwrap();
    assert!(late < LATE, "the work went on for {late:?}");
}

#[tokio::test]
async fn requirement_13_a_server_that_restarts_empty_grants_nothing_until_its_grace_is_over() {
    let lease = 2000;
    let builder = || Server::builder().module_arg("max-lease", &lease.to_string());
    let mut servers = Servers((0..3).map(|_| builder().start()).collect());
    let holder = connect(servers.urls(), ms(400)).await;
    servers.occupy(&[2], "k", lease);
    let lock = holder.lock("k").lease(ms(lease)).auto_renew(false);
    let guard = lock.acquire().await.unwrap();
    // The lock is held on 0 and 1. Server 1 restarts empty, and server 2 becomes free.
    servers.0[1].sigkill();
    servers.0[1].set_module_arg("grace", &lease.to_string());
    servers.0[1].start_again();
    servers.vacate(&[2], "k");
    let other = connect(servers.urls(), ms(400)).await;
    let lock = other.lock("k").lease(ms(lease)).wait(ms(20_000));
    let second = lock.acquire().await.unwrap();
    assert!(!guard.is_valid(), "two hold the lock");
    assert!(second.token() > guard.token());
}

#[tokio::test]
async fn requirement_14_extending_needs_a_majority_within_the_validity() {
    let (servers, quorum) = quorum_within(5, ms(500)).await;
    let guard = quorum.lock("k").lease(ms(3_000)).acquire().await.unwrap();
    servers.0[0].stop_signal();
    servers.0[1].stop_signal();
    let first = guard.deadline();
    eventually("a majority renews it", || async {
        guard.deadline() > first + ms(3_000)
    })
    .await;
    assert!(guard.is_valid());
    servers.0[2].stop_signal();
    assert_eq!(guard.lost().await, Loss::Expired);
    for n in 0..3 {
        servers.0[n].cont_signal();
    }
}

#[tokio::test]
async fn requirement_14_extending_has_a_limit() {
    let (servers, quorum) = quorum_within(3, ms(500)).await;
    let lock = quorum.lock("k").lease(ms(3_000)).max_hold(ms(5_000));
    let guard = lock.clone().acquire().await.unwrap();
    assert_eq!(guard.lost().await, Loss::HoldLimit);
    servers.await_free("k").await;
}

#[tokio::test]
async fn requirement_14_a_renewal_that_a_minority_confirms_is_an_error() {
    let (servers, quorum) = quorum_within(3, ms(200)).await;
    let guard = quorum.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    // Two grants make the lock, so the third may still be pending. A renewal without the first server needs the other two.
    servers.0[0].stop_signal();
    eventually("two confirm it", async || guard.renew().await.is_ok()).await;
    servers.0[1].stop_signal();
    let renewed = guard.renew().await;
    for silent in &servers.0[..2] {
        silent.cont_signal();
    }
    let is_it = matches!(renewed, Err(Error::NoQuorum { .. }));
    assert!(is_it, "{renewed:?}");
    assert!(guard.is_valid(), "it lasts as long as it did");
}

#[tokio::test]
async fn requirement_14_a_majority_that_denies_is_a_loss_and_a_minority_is_not() {
    let (servers, quorum) = quorum_within(3, ms(5_000)).await;
    let guard = quorum.lock("k").lease(ms(30_000)).acquire().await.unwrap();
    // Two grants make the lock, so the third may still be pending. A renewal without one server needs the other two: after two
    // such renewals the client knows of all three.
    for silent in &servers.0[..2] {
        silent.stop_signal();
        eventually("two confirm it", async || guard.renew().await.is_ok()).await;
        silent.cont_signal();
    }
    cmd!(servers.0[0].connect(), "DEL", "k");
    eventually("two confirm it", async || guard.renew().await.is_ok()).await;
    cmd!(servers.0[2].connect(), "DEL", "k");
    assert_lost(guard.renew().await, Loss::Denied);
    assert_eq!(guard.loss(), Some(Loss::Denied));
    // What is left of the hold stays until the guard is dropped. A LEAVE sent at once would come before the next lock.
    let other = quorum.lock("other").lease(ms(30_000));
    other.acquire().await.unwrap().release().await.unwrap();
    servers.await_free("other").await;
    assert_eq!(servers.taken("k"), [1]);
    drop(guard);
    servers.await_free("k").await;
}
