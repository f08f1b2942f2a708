//! What a quorum offers beyond the algorithm: both modes, queues and cancellation; and its behaviour in partitions.

use mortise_client::{Error, Locks, Loss, Mode, Owner, Quorum};
use mortise_harness::{Server, cmd, text};

use crate::support::proxy::{Proxy, Traffic};
use crate::support::quorum::Servers;
use crate::support::{self, PATIENCE, client, eventually, ms};

#[tokio::test]
async fn readers_share_a_quorum_and_writers_do_not() {
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    let first = quorum.lock("k").read().await.unwrap();
    let second = quorum.lock("k").read().await.unwrap();
    assert!(second.token() > first.token());
    assert!(quorum.lock("k").try_write().await.unwrap().is_none());
    assert!(first.is_valid() && second.is_valid());
    drop((first, second));
    let writer = quorum.lock("k").write().await.unwrap();
    assert!(quorum.lock("k").try_read().await.unwrap().is_none());
    drop(writer);
}

#[tokio::test]
async fn an_upgrade_and_a_downgrade_over_a_quorum_are_refused_and_change_nothing() {
    let servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(600)).await;
    let mut reader = quorum.lock("k").lease(ms(2500)).read().await.unwrap();
    let refused = reader.upgrade().await.unwrap_err();
    assert!(matches!(refused.error, Error::NotOverQuorum(_)));
    assert_eq!(refused.left, Some(Mode::Read));
    assert!(refused.to_string().contains("release"), "{refused}");
    let token = reader.token();
    reader.renew().await.unwrap();
    assert!(quorum.lock("k").try_read().await.unwrap().is_some());
    assert_eq!((reader.mode(), reader.token()), (Mode::Read, token));
    reader.release().await.unwrap();
    servers.await_free("k").await;
    let mut writer = quorum.lock("k").write().await.unwrap();
    let refused = writer.downgrade().await.unwrap_err();
    assert!(matches!(refused.error, Error::NotOverQuorum(_)));
    assert_eq!(refused.left, Some(Mode::Write));
    writer.release().await.unwrap();
}

#[tokio::test]
async fn re_entry_over_a_quorum_keeps_the_token() {
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    let owner = Owner::new();
    let lock = quorum.lock("k").owner(&owner).reentrant();
    let outer = lock.acquire().await.unwrap();
    eventually("all have granted", || async {
        servers.taken("k").len() == 3
    })
    .await;
    outer.renew().await.unwrap();
    let inner = lock.acquire().await.unwrap();
    assert_eq!(
        (inner.token(), inner.owner()),
        (outer.token(), outer.owner())
    );
    outer.release().await.unwrap();
    assert!(inner.renew().await.is_ok());
    inner.release().await.unwrap();
    servers.await_free("k").await;
}

#[tokio::test]
async fn a_waiter_for_a_quorum_queues_on_one_server_and_is_granted_by_hand_off() {
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    let guard = quorum.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = quorum.lock("k");
        async move { lock.acquire().await.unwrap() }
    });
    servers.await_waiter(&[0, 1, 2], "k").await;
    guard.release().await.unwrap();
    assert!(waiting.await.unwrap().is_valid());
}

#[tokio::test]
async fn a_waiter_on_a_server_that_falls_silent_queues_on_another() {
    let servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(150)).await;
    let guard = quorum.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = quorum.lock("k");
        async move { lock.acquire().await.unwrap() }
    });
    let silent = servers.await_waiter(&[0, 1, 2], "k").await;
    servers.0[silent].stop_signal();
    let others: Vec<_> = (0..3).filter(|node| *node != silent).collect();
    servers.await_waiter(&others, "k").await;
    let _ = guard.release().await;
    assert!(waiting.await.unwrap().is_valid());
    servers.0[silent].cont_signal();
}

#[tokio::test]
async fn an_acquire_over_a_quorum_dropped_at_any_point_leaves_nothing() {
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    for step in 0..40 {
        let _ = tokio::time::timeout(
            std::time::Duration::from_micros(step * 100),
            quorum.lock("k").acquire(),
        )
        .await;
        servers.await_free("k").await;
    }
    let guard = quorum.lock("k").acquire().await.unwrap();
    for step in 0..40 {
        let limit = std::time::Duration::from_micros(step * 250);
        assert!(
            tokio::time::timeout(limit, quorum.lock("k").acquire())
                .await
                .is_err()
        );
    }
    guard.release().await.unwrap();
    servers.await_free("k").await;
    tokio::time::sleep(ms(50)).await;
    assert!(servers.taken("k").is_empty());
}

#[tokio::test]
async fn a_partitioned_majority_is_a_loss_and_its_return_frees_the_lock() {
    let servers = Servers::start(3);
    let mut proxies = Vec::new();
    for server in &servers.0 {
        proxies.push(Proxy::of(server).await);
    }
    let quorum = Quorum::builder(proxies.iter().map(Proxy::url)).unwrap();
    let quorum = quorum.node_timeout(ms(500)).connect().await.unwrap();
    let lock = quorum.lock("k").lease(ms(2_000)).wait(ms(30_000));
    let guard = lock.acquire().await.unwrap();
    for proxy in &proxies[..2] {
        proxy.set(Traffic::Stalls);
    }
    assert_eq!(guard.lost().await, Loss::Expired);
    let released = guard.release().await;
    assert!(matches!(released, Err(Error::Lost(_))), "{released:?}");
    for proxy in &proxies {
        proxy.set(Traffic::Flows);
    }
    servers.await_free("k").await;
    assert!(lock.acquire().await.unwrap().is_valid());
}

#[tokio::test]
async fn the_same_code_acquires_locks_on_one_server_and_over_a_quorum() {
    async fn job(locks: &dyn Locks) -> u64 {
        let guard = locks.lock_of(b"job").acquire().await.unwrap();
        guard.token().get()
    }
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    let one = client(&servers.0[0]).await;
    assert!(job(&quorum).await > 0);
    servers.await_free("job").await;
    assert!(job(&one).await > 0);
}

#[tokio::test]
async fn a_waiter_does_not_skip_a_server_that_closed_its_idle_connections() {
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    servers.occupy(&[0, 1, 2], "k", 60_000);
    close_connections(&servers.0[0]).await;
    let lock = quorum.lock("k").lease(ms(60_000));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    support::await_waiters(&client(&servers.0[0]).await, "k", 1).await;
    servers.vacate(&[0, 1, 2], "k");
    assert!(waiting.await.unwrap().unwrap().is_valid());
}

#[tokio::test]
async fn a_waiter_does_not_skip_a_server_whose_connection_is_still_opening() {
    let servers = Servers::start(3);
    let proxy = Proxy::of(&servers.0[0]).await;
    let mut urls = servers.urls();
    urls[0] = proxy.url();
    let quorum = Quorum::builder(urls).unwrap().node_timeout(ms(10_000));
    let quorum = quorum.connect_timeout(ms(20_000));
    let quorum = quorum.connect().await.unwrap();
    servers.warm(&quorum).await;
    servers.occupy(&[0, 1, 2], "k", 60_000);
    // The handshake takes long: the others have replied by then.
    proxy.set(Traffic::Takes(ms(400)));
    close_connections(&servers.0[0]).await;
    eventually("the proxy has closed it", async || proxy.is_idle()).await;
    // The client's task reads that.
    tokio::time::sleep(ms(20)).await;
    let lock = quorum.lock("k").lease(ms(60_000));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    support::await_waiters(&client(&servers.0[0]).await, "k", 1).await;
    servers.vacate(&[0, 1, 2], "k");
    assert!(waiting.await.unwrap().unwrap().is_valid());
}

/// Closes all connections, as a server does with idle ones. A client connects again with its next request.
async fn close_connections(server: &Server) {
    let mut observer = server.connect();
    cmd!(observer, "CLIENT", "KILL", "TYPE", "normal");
    eventually("all are closed", || {
        let clients = text(&cmd!(observer, "CLIENT", "LIST", "TYPE", "normal"));
        async move { clients.lines().count() == 1 }
    })
    .await;
}

#[tokio::test]
async fn one_server_under_three_addresses_is_refused_as_a_quorum() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let localhost = format!("redis://localhost:{}/", server.port());
    let quorum = Quorum::builder([server.url(), localhost, proxy.url()]).unwrap();
    let quorum = quorum.node_timeout(ms(4_000)).connect().await;
    let error = quorum.map(drop).unwrap_err();
    assert!(
        matches!(&error, Error::Invalid(text) if text.contains("the same server")),
        "{error:?}"
    );
}

#[cfg(feature = "sentinel")]
#[tokio::test]
async fn a_quorum_may_consist_of_primaries_that_sentinels_name() {
    use mortise_client::server::redis::sentinel::{SentinelClient, SentinelServerType};

    // No Sentinel runs there.
    let group = |name: &str| {
        let sentinels = vec!["redis://127.0.0.1:1/"];
        SentinelClient::build(sentinels, name, None, SentinelServerType::Master).unwrap()
    };
    let groups = ["a", "b", "c"].map(group);
    let error = Quorum::connect(groups).await.map(drop).unwrap_err();
    assert!(
        matches!(&error, Error::NoQuorum { nodes, .. } if nodes.len() == 3),
        "{error:?}"
    );
}

/// A connection that breaks may deliver a request a second time, and late.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_a_part_that_arrives_again_does_not_end_the_next_one() {
    let servers = Servers::start(5);
    let quorum = servers.quorum().await;
    servers.occupy(&[0, 1, 2, 3], "k", 600_000);
    let lock = quorum.lock("k").lease(ms(60_000));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    let first = servers.await_waiter(&[0, 1, 2, 3], "k").await;
    eventually("the last server is free", || async {
        !servers.taken("k").contains(&4)
    })
    .await;
    let mut monitor = servers.0[4].connect();
    cmd!(monitor, "MONITOR");
    // It takes two parts, queues on the next server, and gives back the part behind that one meanwhile.
    servers.vacate(&[first], "k");
    let release = loop {
        let line = monitor.recv_within(PATIENCE).expect("it gives it back");
        let line = text(&line.unwrap());
        if line.contains("LOCK.RELEASE") {
            break line;
        }
    };
    servers.vacate(&[0, 1, 2, 3], "k");
    let guard = waiting.await.unwrap().unwrap();
    let again = || async { servers.taken("k").contains(&4) };
    eventually("the last server has granted it again", again).await;
    let words: Vec<&str> = release.split('"').skip(1).step_by(2).collect();
    servers.0[4].connect().cmd(&words);
    assert!(again().await, "{words:?}");
    guard.release().await.unwrap();
}
