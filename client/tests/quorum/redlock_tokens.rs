//! The last requirement of Redlock: a lease is not a fence. Tokens over quorums.

use mortise_client::{Error, NodeReason, Quorum};
use mortise_harness::{ClockStep, Server, cmd, int};

use crate::support::quorum::Servers;
use crate::support::{self, client, eventually, ms};

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
        let quorum = servers
            .builder()
            .node_timeout(ms(500))
            .connect()
            .await
            .unwrap();
        let guard = quorum.lock("k").acquire().await.unwrap();
        assert!(
            guard.token().get() > last,
            "round {round}: {} after {last}",
            guard.token()
        );
        last = guard.token().get();
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
        eventually("all have granted", || async {
            servers.taken("k").len() == 3
        })
        .await;
        guard.release().await.unwrap();
        servers.await_free("k").await;
    }
}

#[tokio::test]
async fn requirement_15_of_two_servers_the_one_far_ahead_counts_as_failed() {
    let mut servers = Servers::start(3);
    push_ahead(&servers.0[1], 1_800_000_000);
    let quorum = servers.builder().node_timeout(ms(500)).build().unwrap();
    servers.0[2].sigkill();
    let error = quorum.lock("k").acquire().await.unwrap_err();
    let Error::NoQuorum {
        needed: 2,
        granted: 1,
        nodes,
    } = &error
    else {
        panic!("{error:?}");
    };
    let reason = |n: usize| {
        let node = nodes.iter().find(|node| node.server == servers.0[n].addr());
        node.map(|node| &node.reason)
    };
    assert!(matches!(reason(1), Some(NodeReason::Ahead)), "{error}");
    assert!(matches!(reason(2), Some(NodeReason::Failed(_))), "{error}");
    assert!(reason(0).is_none(), "it has granted the lock: {error}");
    // The client releases what that server has granted.
    let there = client(&servers.0[1]).await;
    support::await_free(&there, "k").await;
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
    let waiting = tokio::spawn({
        let lock = quorum.lock("k").wait(ms(20_000));
        async move { lock.acquire().await }
    });
    let first = client(&servers.0[0]).await;
    support::await_waiters(&first, "k", 1).await;
    servers.vacate(&[0, 1], "k");
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::NoQuorum { .. }), "{error:?}");
    for node in [0, 1] {
        support::await_free(&client(&servers.0[node]).await, "k").await;
    }
}

#[tokio::test]
async fn requirement_15_a_long_wait_on_one_server_is_no_sign_of_a_clock_ahead() {
    let mut servers = Servers::start(3);
    let quorum = servers.quorum().await;
    servers.0[2].sigkill();
    servers.occupy(&[1], "k", 60_000);
    let waiting = tokio::spawn({
        let lock = quorum.lock("k").lease(ms(60_000));
        async move { lock.acquire().await }
    });
    // Since then it holds on the first server, and waits on the second.
    let second = client(&servers.0[1]).await;
    support::await_waiters(&second, "k", 1).await;
    let grants = servers.0[0].gauge("total_grants");
    tokio::time::sleep(ms(1500)).await;
    servers.vacate(&[1], "k");
    assert!(waiting.await.unwrap().unwrap().is_valid());
    // It kept what it held, and its place with it.
    assert_eq!(servers.0[0].gauge("total_grants"), grants);
}

#[tokio::test]
async fn requirement_15_on_the_fast_path_a_token_takes_one_round_trip() {
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    let calls = |command: &str| -> u64 {
        let calls = servers.0.iter().map(|server| server.calls(command));
        calls.sum()
    };
    for _ in 0..3 {
        servers.warm(&quorum).await;
    }
    let (fences, infos) = (calls("LOCK.FENCE"), calls("info"));
    for _ in 0..50 {
        let guard = quorum.lock("k").acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    let written_back = calls("LOCK.FENCE") - fences;
    assert!(
        written_back <= 20,
        "{written_back} of 50 tokens were written back"
    );
    // Clocks are read now and then, not for each token.
    let read = calls("info") - infos;
    assert!(read < 50, "{read} readings");
}

/// How far a token that was granted just now is ahead of the clock of the first server, which has granted it as well.
async fn ahead(servers: &Servers, quorum: &Quorum) -> u64 {
    let clock = servers.clock(0);
    let guard = quorum.lock("k").acquire().await.unwrap();
    let token = guard.token().get();
    guard.release().await.unwrap();
    token.saturating_sub(clock)
}

#[tokio::test]
async fn requirement_15_tokens_that_a_clock_has_put_ahead_do_not_stay_ahead() {
    let start = |_| Server::builder().clock_shim().start();
    let mut servers = Servers((0..3).map(start).collect());
    servers.0[1].sigkill();
    let step = ms(700);
    let connect = || async {
        let quorum = servers.builder().node_timeout(ms(2_000));
        quorum.connect().await.unwrap()
    };
    servers.0[2].step_clock(ClockStep::Forward(step));
    let far = ahead(&servers, &connect().await).await;
    assert!(far >= 700_000, "the last server decides: {far}");
    servers.0[2].step_clock(ClockStep::Back(step));
    // Two clients that know nothing of that, and see one another's tokens.
    let (one, other) = (connect().await, connect().await);
    eventually("tokens follow the clocks again", || async {
        ahead(&servers, &one).await < 350_000 && ahead(&servers, &other).await < 350_000
    })
    .await;
}
