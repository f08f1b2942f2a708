//! When a request over a quorum asks again, and when that is over.

use std::time::Duration;

use mortise_client::{BootInstant, Error, Quorum};
use mortise_harness::{cmd, text};

use crate::support::proxy::{Proxy, Traffic};
use crate::support::quorum::Servers;
use crate::support::{self, client, eventually, ms, refuse};

/// Longer than any of these requests takes.
const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_majority_that_refuses_is_asked_three_times_and_once_by_an_attempt() {
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    for server in &servers.0[1..] {
        refuse(server, "lock.acquire");
    }
    let tried = quorum.lock("k").try_acquire().await.map(drop);
    assert!(matches!(tried, Err(Error::NoQuorum { .. })), "{tried:?}");
    let of_an_attempt = servers.0[1].errors("NOPERM");
    let acquired = tokio::time::timeout(LONG, quorum.lock("k").acquire()).await;
    let error = acquired.unwrap().map(drop).unwrap_err();
    assert!(error.to_string().contains("NOPERM"), "{error:?}");
    assert_eq!((of_an_attempt, servers.0[1].errors("NOPERM")), (1, 1 + 3));
}

#[tokio::test]
async fn a_server_on_which_a_request_cannot_queue_is_no_missing_majority() {
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    servers.occupy(&[0, 1, 2], "k", 600_000);
    let lock = quorum.lock("k").lease(ms(60_000));
    let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
    let first = servers.await_waiter(&[0, 1, 2], "k").await;
    for server in &servers.0 {
        refuse(server, "lock.acquire");
    }
    cmd!(servers.0[first].connect(), "SET", "k", "no lock any more");
    let ended = tokio::time::timeout(LONG, waiting).await.unwrap().unwrap();
    assert!(matches!(ended, Err(Error::NoQuorum { .. })), "{ended:?}");
    assert_eq!(servers.0[first].errors("NOPERM"), 3);
}

#[tokio::test]
async fn a_lock_that_others_hold_is_busy_after_one_question_or_after_the_wait() {
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    servers.occupy(&[0, 1, 2], "k", 600_000);
    let asked = || -> [u64; 3] {
        let calls = |at: usize| servers.0[at].calls("LOCK.ACQUIRE");
        [calls(0), calls(1), calls(2)]
    };
    let [before, ..] = asked();
    let tried = quorum.lock("k").try_acquire().await.unwrap();
    assert!(tried.is_none());
    let [first, second, third] = asked();
    assert_eq!(first, before + 1);
    let waited = quorum.lock("k").wait(ms(300)).acquire().await.map(drop);
    assert!(matches!(waited, Err(Error::Busy { .. })), "{waited:?}");
    // It asks all once, and waits at one.
    assert_eq!(asked(), [first + 2, second + 1, third + 1]);
}

/// One server is dead, and the other one alone does not make a majority.
#[tokio::test]
async fn a_slow_server_is_waited_for_when_it_makes_the_majority_that_answers() {
    let mut servers = Servers::start(3);
    let proxy = Proxy::of(&servers.0[0]).await;
    let mut urls = servers.urls();
    urls[0] = proxy.url();
    let quorum = Quorum::builder(urls).unwrap().node_timeout(ms(10_000));
    let quorum = quorum.connect().await.unwrap();
    servers.warm(&quorum).await;
    servers.occupy(&[0, 2], "k", 600_000);
    servers.0[1].sigkill();
    proxy.set(Traffic::Takes(ms(100)));
    let lock = quorum.lock("k").lease(ms(60_000));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    support::await_waiters(&client(&servers.0[0]).await, "k", 1).await;
    servers.vacate(&[0, 2], "k");
    assert!(waiting.await.unwrap().unwrap().is_valid());
}

#[tokio::test]
async fn a_waiter_keeps_what_it_has_when_the_next_server_is_dead() {
    let mut servers = Servers::start(3);
    let quorum = servers.quorum().await;
    servers.occupy(&[0, 2], "k", 600_000);
    servers.0[1].sigkill();
    let lock = quorum.lock("k").lease(ms(60_000));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    servers.await_waiter(&[0], "k").await;
    servers.vacate(&[0], "k");
    servers.await_waiter(&[2], "k").await;
    let grants = servers.0[0].gauge("total_grants");
    servers.vacate(&[2], "k");
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(servers.0[0].gauge("total_grants"), grants);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_that_one_server_has_granted_gives_up_when_no_majority_is_left() {
    let mut servers = Servers::start(5);
    let quorum = servers.quorum().await;
    servers.occupy(&[0, 1, 2], "k", 600_000);
    let lock = quorum.lock("k").lease(ms(60_000));
    let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
    let first = servers.await_waiter(&[0, 1, 2], "k").await;
    let next = (first + 1) % 3;
    for server in (0..5).filter(|server| ![first, next].contains(server)) {
        servers.0[server].sigkill();
    }
    servers.vacate(&[first], "k");
    let ended = tokio::time::timeout(LONG, waiting).await.unwrap().unwrap();
    assert!(matches!(ended, Err(Error::NoQuorum { .. })), "{ended:?}");
}

#[tokio::test]
async fn an_attempt_that_is_read_late_fails_if_the_servers_do_not_confirm_it() {
    let mut servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(1_000)).await;
    let lease = ms(4_000);
    servers.0[2].sigkill();
    for server in &servers.0[..2] {
        refuse(server, "lock.renew");
        cmd!(server.connect(), "CLIENT", "PAUSE", 60_000, "WRITE");
    }
    let lock = quorum.lock("k").lease(lease).auto_renew(false);
    let trying = tokio::spawn(async move { lock.try_acquire().await });
    eventually("both servers have been asked", async || {
        servers.0[..2].iter().all(|server| {
            let clients = text(&cmd!(server.connect(), "CLIENT", "LIST"));
            clients.to_lowercase().contains("cmd=lock.acquire")
        })
    })
    .await;
    // All tasks of the client run on this thread.
    for server in &servers.0[..2] {
        cmd!(server.connect(), "CLIENT", "UNPAUSE");
    }
    std::thread::sleep(lease * 6 / 10);
    trying.await.unwrap().map(drop).unwrap_err();
}

/// The client does not run for more than half of the lease after a server has granted it, and cannot renew it there.
#[tokio::test]
async fn a_grant_that_is_read_late_is_not_enough() {
    let mut servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(1_000)).await;
    let lease = ms(4_000);
    servers.0[2].sigkill();
    servers.occupy(&[0, 1], "k", 600_000);
    let lock = quorum.lock("k").lease(lease).auto_renew(false);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    let first = servers.await_waiter(&[0, 1], "k").await;
    refuse(&servers.0[first], "lock.renew");
    // All tasks of the client run on this thread.
    servers.vacate(&[0, 1], "k");
    std::thread::sleep(lease * 6 / 10);
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.deadline() > BootInstant::now() + lease / 2);
}
