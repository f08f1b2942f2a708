//! When a request over a quorum asks again, and when that is over.

use mortise_client::Error;
use mortise_harness::{cmd, text};

use crate::support::quorum::{quorum_of, quorum_within};
use crate::support::{eventually, ms, refuse};

#[tokio::test]
async fn an_attempt_that_is_read_late_fails_if_the_servers_do_not_confirm_it() {
    let (mut servers, quorum) = quorum_within(3, ms(1_000)).await;
    let lease = ms(4_000);
    servers.0[2].sigkill();
    for server in &servers.0[..2] {
        refuse(server, "lock.renew");
        cmd!(server.connect(), "CLIENT", "PAUSE", 60_000, "WRITE");
    }
    let lock = quorum.lock("k").lease(lease).auto_renew(false);
    let trying = tokio::spawn(lock.try_acquire());
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
    trying.await.unwrap().unwrap_err();
}

#[tokio::test]
async fn a_majority_that_refuses_is_reported_at_once() {
    let (servers, quorum) = quorum_of(3).await;
    for server in &servers.0[1..] {
        refuse(server, "lock.acquire");
    }
    let error = quorum.lock("k").acquire().await.unwrap_err();
    assert!(matches!(error, Error::NoQuorum { .. }), "{error:?}");
    assert!(error.to_string().contains("NOPERM"), "{error:?}");
    assert_eq!(servers.0[1].errors("NOPERM"), 1);
}

#[tokio::test]
async fn a_lock_that_others_hold_is_busy_after_one_question_or_after_the_wait() {
    let (servers, quorum) = quorum_of(3).await;
    servers.occupy(&[0, 1, 2], "k", 600_000);
    let asked = || -> u64 {
        let calls = servers.0.iter().map(|server| server.calls("LOCK.ACQUIRE"));
        calls.sum()
    };
    let before = asked();
    assert!(quorum.lock("k").try_acquire().await.unwrap().is_none());
    eventually("all are asked once", async || asked() == before + 3).await;
    let waited = quorum.lock("k").wait(ms(300)).acquire().await.map(drop);
    assert!(matches!(waited, Err(Error::Busy { .. })), "{waited:?}");
    // It asks all once, and waits at one.
    assert_eq!(asked(), before + 3 + 4);
}

#[tokio::test]
async fn without_a_majority_an_acquisition_waits_as_long_as_its_limit_and_without_one_for_the_servers_return()
 {
    let (mut servers, quorum) = quorum_within(3, ms(500)).await;
    servers.0[0].sigkill();
    servers.0[1].sigkill();
    let lock = quorum.lock("k");
    let error = lock.clone().wait(ms(1_000)).acquire().await.unwrap_err();
    assert!(matches!(error, Error::NoQuorum { .. }), "{error:?}");
    let waiting = tokio::spawn(lock.acquire());
    tokio::time::sleep(ms(1_500)).await;
    assert!(!waiting.is_finished());
    servers.0[0].start_again();
    assert!(waiting.await.unwrap().unwrap().is_valid());
}
