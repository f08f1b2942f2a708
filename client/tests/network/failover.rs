//! Another server takes over while a lock is held and a task waits for it: the holder keeps its lock, and the waiter queues at the new home.

use std::time::Duration;

use mortise_client::{Client, Error, Guard};
use mortise_harness::{
    Server, array, cmd, eventually_within, hold_of, text, try_cmd, wait_for_sync,
};
use tokio::task::JoinHandle;

use crate::support::{await_free, await_waiters, eventually, ms, start};

pub(crate) const KEY: &str = "key";
/// A Sentinel that stood still does nothing for half a minute, which happens several times in a row on a busy machine.
const TAKEOVER: Duration = Duration::from_secs(180);

/// A held lock, and a task that waits for it.
pub(crate) struct Scene {
    client: Client,
    guard: Guard,
    pub(crate) waiting: JoinHandle<Result<Guard, Error>>,
}

impl Scene {
    pub(crate) async fn of(client: Client) -> Scene {
        // Longer than any failover here takes.
        let lock = client.lock(KEY).lease(2 * TAKEOVER);
        let guard = lock.clone().acquire().await.unwrap();
        let waiting = tokio::spawn(lock.acquire());
        await_waiters(&client, KEY, 1).await;
        Scene {
            client,
            guard,
            waiting,
        }
    }

    /// Checks that the hold is on its new home, and that the waiter queues there. Then hands the lock over.
    pub(crate) async fn check_at(self, home: &Server) {
        let (token, guard) = (self.guard.token(), self.guard);
        eventually_within(TAKEOVER, "the waiter asks the new home", || {
            // A Sentinel closes all connections of a server that it promotes.
            let info = try_cmd!(home.connect(), "INFO", "lock").map(|info| text(&info))?;
            let waits = info.contains("lock_waiters:1\r\n");
            if waits { Ok(()) } else { Err(info) }
        });
        let hold = hold_of(&mut home.connect(), KEY, guard.owner()).unwrap();
        assert_eq!(hold.token as u64, token.get());
        eventually("it is renewed", async || guard.renew().await.is_ok()).await;
        assert!(guard.is_valid() && !self.waiting.is_finished());
        guard.release().await.unwrap();
        let next = self.waiting.await.unwrap().unwrap();
        assert!(next.token() > token);
        next.release().await.unwrap();
        await_free(&self.client, KEY).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_a_primary_hangs_or_dies_sentinel_leads_holder_and_waiter_to_the_next_one() {
    for hangs in [true, false] {
        let mut primary = Server::start();
        let replica = Server::builder().replica_of(&primary).start();
        wait_for_sync(&primary, &replica);
        let sentinel = Server::builder().sentinel();
        let sentinel = sentinel.watching("locks", primary.port(), 1).start();
        eventually_within(TAKEOVER, "the Sentinel knows the replica", || {
            let known = cmd!(sentinel.connect(), "SENTINEL", "REPLICAS", "locks");
            array(&known).len() == 1
        });
        let client = Client::sentinel([sentinel.url()], "locks").unwrap();
        let client = client.response_timeout(ms(500)).build().unwrap();
        // A Sentinel takes a primary that replies late to be down for a moment.
        let is_up = async || client.info(KEY).await.is_ok();
        eventually("the Sentinel names the primary", is_up).await;
        let scene = Scene::of(client).await;
        wait_for_sync(&primary, &replica);
        if hangs {
            primary.stop_signal();
        } else {
            primary.sigkill();
        }
        scene.check_at(&replica).await;
    }
}

#[tokio::test]
async fn a_waiter_whose_server_is_demoted_asks_again_until_it_is_a_primary() {
    let (server, client) = start().await;
    let guard = client.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let waiting = tokio::spawn(client.lock("k").wait(ms(60_000)).acquire());
    for _ in 0..3 {
        await_waiters(&client, "k", 1).await;
        cmd!(server.connect(), "REPLICAOF", "127.0.0.1", "1");
        // A replica refuses the request like every write.
        tokio::time::sleep(ms(300)).await;
        cmd!(server.connect(), "REPLICAOF", "NO", "ONE");
    }
    await_waiters(&client, "k", 1).await;
    guard.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
}

#[cfg(feature = "cluster")]
mod in_a_cluster {
    use mortise_harness::Cluster;

    use super::*;
    use crate::support::client_of_cluster;

    /// Fails over by `change`, which gets the primary of the lock and its replica.
    async fn check(change: impl FnOnce(&mut Server, &Server)) {
        let node = || Server::builder().config("cluster-node-timeout", "2000");
        let mut cluster = Cluster::start_with_replicas(3, node);
        let scene = Scene::of(client_of_cluster(&cluster).await).await;
        let home = cluster.home_of(KEY);
        let (old, new) = (&mut cluster.primaries[home], &cluster.replicas[home]);
        wait_for_sync(old, new);
        change(old, new);
        scene.check_at(new).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn after_a_manual_failover_the_holder_keeps_its_lock_and_the_waiter_queues_again() {
        check(|_, new| drop(cmd!(new.connect(), "CLUSTER", "FAILOVER"))).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn after_a_primary_dies_the_holder_keeps_its_lock_and_the_waiter_queues_again() {
        check(|old, _| old.sigkill()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn after_a_primary_hangs_the_holder_keeps_its_lock_and_the_waiter_queues_again() {
        check(|old, _| old.stop_signal()).await;
    }
}
