//! Holders and waiters, shown by a single server and by each server of a quorum; and which types are `Send`.

use mortise_client::{BootInstant, Client, Error, Guard, Lock, Owner, Quorum};

#[cfg(feature = "cluster")]
use crate::support::await_waiters;
use crate::support::quorum::quorum_of;
use crate::support::{client, eventually};

#[cfg(feature = "cluster")]
#[tokio::test(flavor = "multi_thread")]
async fn top_of_a_cluster_lists_the_longest_queues_of_all_primaries() {
    let cluster = mortise_harness::Cluster::start(3, mortise_harness::Server::builder);
    let seeds = cluster.nodes().map(mortise_harness::Server::url);
    let client = Client::cluster(seeds).unwrap().connect().await.unwrap();
    // One, two and three wait, for a lock of each primary.
    let keys: [String; 3] = std::array::from_fn(|home| {
        let mut keys = (0..).map(|n| format!("key{n}"));
        keys.find(|key| cluster.home_of(key) == home).unwrap()
    });
    let (mut guards, mut waiting) = (Vec::new(), tokio::task::JoinSet::new());
    for (key, waiters) in keys.iter().zip(1..) {
        let lock = client.lock(key).lease(std::time::Duration::from_secs(60));
        guards.push(lock.clone().acquire().await.unwrap());
        for _ in 0..waiters {
            let lock = lock.clone();
            waiting.spawn(async move { lock.clone().acquire().await.map(drop) });
        }
        await_waiters(&client, key, waiters).await;
    }
    let top = client.top(2).await.unwrap();
    let top: Vec<_> = top.iter().map(|it| (&*it.key, it.waiters)).collect();
    assert_eq!(top, [(keys[2].as_bytes(), 3), (keys[1].as_bytes(), 2)]);
    assert_eq!(client.top(10).await.unwrap().len(), 3);
}

#[tokio::test]
async fn info_of_a_quorum_shows_the_holder_on_each_server_and_which_server_is_silent() {
    let (mut servers, quorum) = quorum_of(3).await;
    let free = quorum.info("k").await;
    assert!(
        free.iter().all(|there| matches!(there.answer, Ok(None))),
        "{free:?}"
    );
    let guard = quorum.lock("k").acquire().await.unwrap();
    eventually("all have granted", || async {
        let answers = quorum.info("k").await;
        answers.iter().all(
            |there| matches!(&there.answer, Ok(Some(info)) if info.holds[0].owner == guard.owner()),
        )
    })
    .await;
    let silent = servers.0[1].addr();
    servers.0[1].sigkill();
    for there in quorum.info("k").await {
        let is_silent = matches!(there.answer, Err(Error::Connection { .. }));
        assert_eq!(is_silent, there.server == silent, "{there:?}");
    }
}

/// Runs nothing: the test is that this compiles.
#[test]
fn all_types_and_futures_can_be_sent_to_other_threads_and_those_of_a_lock_own_what_they_need() {
    fn both<T: Send + Sync + 'static>() {}
    fn future<F: Future + Send>(_: F) {}
    fn owns<F: Future + Send + 'static>(_: F) {}
    both::<(Client, Quorum, Lock, Guard, Owner, Error, BootInstant)>();
    both::<(
        mortise_client::Builder<mortise_client::Client>,
        mortise_client::Builder<mortise_client::Quorum>,
    )>();
    let _ = |client: Client, lock: fn() -> Lock, guard: Guard| {
        future(client.info("k"));
        future(client.top(1));
        owns(lock().acquire());
        owns(lock().try_acquire());
        owns(lock().read());
        owns(lock().run(|_| async { Ok::<_, Error>(()) }));
        owns(guard.lost());
        future(guard.renew());
        future(guard.downgrade());
        future(guard.upgrade());
        owns(guard.release());
    };
}

#[tokio::test]
async fn a_client_and_a_guard_are_shown_by_what_tells_them_apart() {
    let server = mortise_harness::Server::start();
    let client = client(&server).await;
    assert!(format!("{client:?}").contains(&server.addr()), "{client:?}");
    let owner = Owner::named("billing").unwrap();
    let lock = client.lock("stock").owner(&owner);
    assert_eq!(lock.key(), b"stock");
    let guard = lock.acquire().await.unwrap();
    let (shown, token) = (format!("{guard:?}"), format!("{:?}", guard.token()));
    for part in ["Guard", "stock", "billing##", "Write", &token] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}
