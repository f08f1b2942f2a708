//! The last requirement of Redlock: a lease is not a fence. Tokens over quorums.

use mortise_client::Error;
use mortise_harness::{Server, cmd, int};

use crate::support::quorum::{Servers, connect};
use crate::support::{await_free, client, ms};

/// Makes a server grant tokens this many microseconds ahead of its clock from now on.
fn push_ahead(server: &Server, micros: i64) {
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "push", "x", 1000));
    cmd!(conn, "LOCK.FENCE", "push", "x", token + micros);
    cmd!(conn, "LOCK.RELEASE", "push", "x");
}

#[tokio::test]
async fn requirement_15_tokens_grow_from_any_majority_to_any_other() {
    let servers = Servers::start(5);
    let mut last = 0;
    let majorities = [[0, 1, 2], [2, 3, 4], [0, 1, 4], [1, 2, 3], [0, 3, 4]];
    for (round, majority) in majorities.into_iter().enumerate() {
        // One server of each majority is ahead of the others, but not far enough to count as failed.
        push_ahead(&servers.0[majority[round % 3]], 50_000 * (round as i64 + 1));
        let others: Vec<usize> = (0..5).filter(|n| !majority.contains(n)).collect();
        servers.occupy(&others, "k", 60_000);
        // A client that knows nothing of the grants before.
        let quorum = connect(servers.urls(), ms(500)).await;
        let guard = quorum.lock("k").acquire().await.unwrap();
        let token = guard.token().get();
        assert!(token > last, "round {round}: {token} after {last}");
        last = token;
        guard.release().await.unwrap();
        servers.vacate(&others, "k");
        servers.await_free("k").await;
    }
}

#[tokio::test]
async fn requirement_15_a_server_far_ahead_of_the_majority_does_not_pull_the_others_ahead() {
    let servers = Servers::start(3);
    push_ahead(&servers.0[1], 1_800_000_000);
    let quorum = servers.quorum().await;
    for _ in 0..5 {
        let guard = quorum.lock("k").acquire().await.unwrap();
        servers.await_granted("k").await;
        guard.release().await.unwrap();
        servers.await_free("k").await;
    }
}

#[tokio::test]
async fn requirement_15_of_two_servers_the_one_far_ahead_counts_as_failed() {
    let mut servers = Servers::start(3);
    push_ahead(&servers.0[1], 1_800_000_000);
    let quorum = servers.builder().response_timeout(ms(500)).build().unwrap();
    servers.0[2].sigkill();
    let brief = quorum.lock("k").wait(ms(1_000));
    let error = brief.acquire().await.unwrap_err();
    let granted = matches!(
        error,
        Error::NoQuorum {
            needed: 2,
            granted: 1,
            ..
        }
    );
    assert!(granted, "{error:?}");
    let reason = |n: usize| servers.reason(&error, n);
    assert!(matches!(reason(1), Some(Error::Ahead)), "{error}");
    assert!(
        matches!(reason(2), Some(Error::Connection { .. })),
        "{error}"
    );
    assert!(reason(0).is_none(), "it has granted the lock: {error}");
    // The client releases what that server has granted.
    await_free(&client(&servers.0[1]).await, "k").await;
    // The third server shows which one is right.
    servers.0[2].start_again();
    let limit = servers.clock(0) + 60_000_000;
    let guard = quorum.lock("k").wait(ms(20_000)).acquire().await.unwrap();
    assert!(guard.token().get() < limit, "it pulled the others ahead");
}

#[tokio::test]
async fn requirement_15_a_waiter_does_not_accept_the_token_of_a_server_far_ahead_either() {
    let mut servers = Servers::start(3);
    push_ahead(&servers.0[0], 1_800_000_000);
    let quorum = servers.quorum().await;
    servers.0[2].sigkill();
    servers.occupy(&[0, 1], "k", 60_000);
    let waiting = tokio::spawn(quorum.lock("k").wait(ms(3_000)).acquire());
    servers.await_waiter(&[0, 1], "k").await;
    servers.vacate(&[0, 1], "k");
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::NoQuorum { .. }), "{error:?}");
    for node in [0, 1] {
        await_free(&client(&servers.0[node]).await, "k").await;
    }
}
