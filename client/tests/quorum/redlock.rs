//! What the Redlock algorithm requires, point by point: "Distributed Locks with Redis" in the Redis documentation. The
//! last point, fencing, is in `redlock_tokens.rs`.

use std::time::{Duration, Instant};

use mortise_client::{BootInstant, Error, Guard, Loss, Owner, Quorum};
use mortise_harness::{Server, cmd};

use crate::support::quorum::Servers;
use crate::support::{LATE, client, eventually, ms};

#[tokio::test]
async fn requirement_1_the_servers_must_be_independent_of_an_odd_number_and_distinct() {
    for count in [1, 3, 5] {
        let servers = Servers::start(count);
        let quorum = servers.quorum().await;
        let guard = quorum.lock("k").acquire().await.unwrap();
        assert!(servers.taken("k").len() > count / 2);
        guard.release().await.unwrap();
        servers.await_free("k").await;
    }
    let even = Quorum::builder(["redis://a/", "redis://b/"]).unwrap_err();
    assert!(matches!(even, Error::Invalid(_)), "{even:?}");
    let twice = Quorum::builder(["redis://a/", "redis://b/", "redis://a/"]).unwrap_err();
    assert!(matches!(twice, Error::Invalid(_)), "{twice:?}");
}

#[tokio::test]
async fn requirement_2_the_owner_is_unique_per_client_and_request() {
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
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
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    servers.occupy(&[0, 1, 2], "k", 60_000);
    assert!(quorum.lock("k").try_acquire().await.unwrap().is_none());
    assert_eq!(
        servers.taken("k"),
        [0, 1, 2],
        "somebody else's hold was released"
    );
    servers.vacate(&[0, 1, 2], "k");
    let guard = quorum.lock("k").acquire().await.unwrap();
    for server in &servers.0 {
        cmd!(server.connect(), "DEL", "k");
    }
    servers.occupy(&[0, 1, 2], "k", 60_000);
    let released = guard.release().await;
    assert!(matches!(released, Err(Error::Lost(_))), "{released:?}");
    assert_eq!(servers.taken("k"), [0, 1, 2]);
}

#[tokio::test]
async fn requirement_4_the_lease_is_counted_from_before_the_first_request() {
    let servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(5000)).await;
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
    let servers = Servers::start(5);
    let quorum = servers.quorum().await;
    let guard = quorum.lock("k").acquire().await.unwrap();
    eventually("all have granted", || async {
        servers.taken("k").len() == 5
    })
    .await;
    for client in servers.clients().await {
        let info = client.info("k").await.unwrap().unwrap();
        assert_eq!(info.holds[0].owner, guard.owner());
    }
}

#[tokio::test]
async fn requirement_6_a_paused_minority_costs_nothing_once_the_majority_has_answered() {
    let servers = Servers::start(5);
    let node_timeout = ms(8000);
    let quorum = servers.quorum_with(node_timeout).await;
    let lock = quorum.lock("k").lease(node_timeout * 5);
    servers.0[0].stop_signal();
    servers.0[3].stop_signal();
    let started = Instant::now();
    for _ in 0..5 {
        let guard = lock.clone().acquire().await.unwrap();
        guard.renew().await.unwrap();
        guard.release().await.unwrap();
    }
    assert!(started.elapsed() < node_timeout, "{:?}", started.elapsed());
    servers.0[0].cont_signal();
    servers.0[3].cont_signal();
    // The releases follow the requests that they had not read.
    servers.await_free("k").await;
}

#[tokio::test]
async fn requirement_6_a_dead_minority_costs_nothing() {
    let mut servers = Servers::start(5);
    let node_timeout = ms(8000);
    let quorum = servers.quorum_with(node_timeout).await;
    let lock = quorum.lock("k").lease(node_timeout * 5);
    servers.0[1].sigkill();
    servers.0[4].sigkill();
    let started = Instant::now();
    let guard = lock.clone().acquire().await.unwrap();
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    assert!(started.elapsed() < node_timeout, "{:?}", started.elapsed());
}

#[tokio::test]
async fn requirement_7_without_a_majority_there_is_no_lock_and_the_error_names_the_reason_of_each_server()
 {
    let mut servers = Servers::start(5);
    let quorum = servers.quorum_with(ms(1000)).await;
    servers.0[0].sigkill();
    servers.0[1].stop_signal();
    servers.occupy(&[2], "k", 60_000);
    servers.0[4].sigkill();
    let error = quorum.lock("k").wait(ms(1500)).acquire().await.unwrap_err();
    let Error::NoQuorum {
        needed: 3,
        granted,
        nodes,
    } = &error
    else {
        panic!("{error:?}");
    };
    assert!(*granted <= 1, "{error}");
    let reason = |n: usize| {
        let node = nodes.iter().find(|node| node.server == servers.0[n].addr());
        &node.unwrap_or_else(|| panic!("{error}")).reason
    };
    let is_silent = |n: usize| match reason(n) {
        Error::Connection { error, .. } => error.is_timeout(),
        other => panic!("{other:?}"),
    };
    assert!(!is_silent(0) && is_silent(1), "{error}");
    assert!(reason(2).is_busy(), "{error}");
    servers.0[1].cont_signal();
}

#[tokio::test]
async fn requirement_7_a_lease_that_could_end_before_the_servers_reply_is_refused() {
    let servers = Servers::start(1);
    let others = Servers::start(2);
    let urls = [servers.urls(), others.urls()].concat();
    let quorum = Quorum::builder(urls)
        .unwrap()
        .response_timeout(ms(50))
        .connect_timeout(ms(10_000))
        .connect()
        .await
        .unwrap();
    let error = quorum.lock("k").lease(ms(199)).acquire().await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    assert!(quorum.lock("k").lease(ms(200)).acquire().await.is_ok());
}

#[tokio::test]
async fn requirement_8_validity_is_the_lease_less_the_time_that_has_passed_and_the_drift() {
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    let before = BootInstant::now();
    let guard = quorum
        .lock("k")
        .lease(ms(10_000))
        .auto_renew(false)
        .acquire()
        .await
        .unwrap();
    let after = BootInstant::now();
    let validity = ms(10_000 - 100 - 2);
    assert!(guard.deadline() >= before + validity && guard.deadline() <= after + validity);
}

#[tokio::test]
async fn requirement_9_a_failed_round_releases_on_all_servers_even_without_a_reply() {
    let servers = Servers::start(5);
    let quorum = servers.quorum_with(ms(200)).await;
    servers.occupy(&[0, 1, 2], "k", 60_000);
    servers.0[4].stop_signal();
    assert!(!matches!(quorum.lock("k").try_acquire().await, Ok(Some(_))));
    servers.0[4].cont_signal();
    for n in [3, 4] {
        let client = client(&servers.0[n]).await;
        eventually("it is free", || async {
            client.info("k").await.unwrap().is_none()
        })
        .await;
        tokio::time::sleep(ms(20)).await;
        assert_eq!(client.info("k").await.unwrap(), None);
    }
}

#[tokio::test]
async fn requirement_10_competing_clients_are_all_granted_one_at_a_time() {
    let servers = Servers::start(3);
    let mut work = tokio::task::JoinSet::new();
    let (inside, last) = <(
        std::sync::Arc<std::sync::atomic::AtomicU64>,
        std::sync::Arc<std::sync::atomic::AtomicU64>,
    )>::default();
    for _ in 0..6 {
        let (quorum, inside, last) = (
            servers.quorum_with(ms(1_000)).await,
            inside.clone(),
            last.clone(),
        );
        work.spawn(async move {
            use std::sync::atomic::Ordering::SeqCst;
            for _ in 0..8 {
                let guard = quorum.lock("k").lease(ms(4000)).acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, SeqCst), 0, "two are inside");
                let token = guard.token().get();
                assert!(last.swap(token, SeqCst) < token, "a token has gone back");
                tokio::task::yield_now().await;
                assert_eq!(inside.fetch_sub(1, SeqCst), 1);
                guard.release().await.unwrap();
            }
        });
    }
    let all = tokio::time::timeout(ms(20_000), work.join_all()).await;
    assert!(all.is_ok(), "somebody has waited for 20 seconds");
}

#[tokio::test]
async fn requirement_11_a_lock_can_be_released_even_after_its_loss() {
    let servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(100)).await;
    let guard = quorum
        .lock("k")
        .lease(ms(400))
        .auto_renew(false)
        .acquire()
        .await
        .unwrap();
    assert_eq!(guard.lost().await, Loss::Expired);
    let released = guard.release().await;
    assert!(
        matches!(released, Err(Error::Lost(Loss::Expired))),
        "{released:?}"
    );
    servers.await_free("k").await;
}

#[tokio::test]
async fn requirement_11_a_release_fails_if_a_majority_no_longer_had_the_lock() {
    let servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(5_000)).await;
    let lock = quorum.lock("k").lease(ms(60_000)).auto_renew(false);
    let guard = lock.clone().acquire().await.unwrap();
    // The third grant may come after two have made the lock.
    eventually("all have granted it", || async {
        servers.taken("k").len() == 3
    })
    .await;
    for server in &servers.0[..2] {
        cmd!(server.connect(), "DEL", "k");
    }
    assert!(guard.is_valid(), "the client has not asked since");
    let released = guard.release().await;
    assert!(
        matches!(released, Err(Error::Lost(Loss::Denied))),
        "{released:?}"
    );
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
    let servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(100)).await;
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
    let mut servers = Servers(
        (0..3)
            .map(|_| {
                Server::builder()
                    .module_arg("max-lease", &lease.to_string())
                    .start()
            })
            .collect(),
    );
    let holder = servers
        .builder()
        .response_timeout(ms(400))
        .connect_timeout(ms(10_000))
        .connect()
        .await
        .unwrap();
    servers.occupy(&[2], "k", lease);
    let guard = holder
        .lock("k")
        .lease(ms(lease))
        .auto_renew(false)
        .acquire()
        .await
        .unwrap();
    // The lock is held on 0 and 1. Server 1 restarts empty, and server 2 becomes free.
    servers.0[1].sigkill();
    servers.0[1].set_module_arg("grace", &lease.to_string());
    servers.0[1].start_again();
    servers.vacate(&[2], "k");
    let other = servers
        .builder()
        .response_timeout(ms(400))
        .connect_timeout(ms(10_000))
        .connect()
        .await
        .unwrap();
    let second = other
        .lock("k")
        .lease(ms(lease))
        .wait(ms(20_000))
        .acquire()
        .await
        .unwrap();
    assert!(!guard.is_valid(), "two hold the lock");
    assert!(second.token() > guard.token());
}

#[tokio::test]
async fn requirement_14_extending_needs_a_majority_within_the_validity() {
    let servers = Servers::start(5);
    let quorum = servers.quorum_with(ms(500)).await;
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
    let servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(500)).await;
    let lock = quorum.lock("k").lease(ms(3_000)).max_hold(ms(5_000));
    let guard = lock.clone().acquire().await.unwrap();
    assert_eq!(guard.lost().await, Loss::HoldLimit);
    servers.await_free("k").await;
}

#[tokio::test]
async fn requirement_14_a_renewal_that_a_minority_confirms_is_an_error() {
    let servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(200)).await;
    let guard = quorum.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    for silent in &servers.0[..2] {
        silent.stop_signal();
    }
    let renewed = guard.renew().await;
    for silent in &servers.0[..2] {
        silent.cont_signal();
    }
    assert!(
        matches!(renewed, Err(Error::NoQuorum { .. })),
        "{renewed:?}"
    );
    assert!(guard.is_valid(), "it lasts as long as it did");
}

#[tokio::test]
async fn requirement_14_a_majority_that_denies_is_a_loss_and_a_minority_is_not() {
    let servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(5_000)).await;
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
    assert!(matches!(
        guard.renew().await,
        Err(Error::Lost(Loss::Denied))
    ));
    assert_eq!(guard.loss(), Some(Loss::Denied));
    // What is left of the hold stays until the guard is dropped. A LEAVE sent at once would come before the next lock.
    let other = quorum.lock("other").lease(ms(30_000));
    other.acquire().await.unwrap().release().await.unwrap();
    servers.await_free("other").await;
    assert_eq!(servers.taken("k"), [1]);
    drop(guard);
    servers.await_free("k").await;
}
