//! A cluster whose slots change hands while a lock is held and waited for.

use std::time::Duration;

use mortise_client::{Client, Guard};
use mortise_harness::{
    Builder, Cluster, Server, begin_migration, cmd, end_migration, eventually_within, hold_of,
    migrate, text, wait_for_sync,
};
use tokio::task::JoinHandle;

use crate::support::{PATIENCE, await_free, await_waiters, eventually, ms};

const KEY: &str = "key";

fn node() -> Builder {
    Server::builder().config("cluster-node-timeout", "2000")
}

/// A lock that is held, and somebody who waits for it.
struct Scene {
    client: Client,
    guard: Guard,
    waiting: JoinHandle<Guard>,
}

impl Scene {
    async fn over(cluster: &Cluster) -> Scene {
        let seeds = mortise_client::Server::cluster(cluster.nodes().map(Server::url)).unwrap();
        let client = Client::builder(seeds).unwrap().connect().await.unwrap();
        // Longer than any failover here takes.
        let lock = client
            .lock(KEY)
            .lease(Duration::from_secs(60))
            .wait_forever();
        let guard = lock.acquire().await.unwrap();
        let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
        await_waiters(&client, KEY, 1).await;
        Scene {
            client,
            guard,
            waiting,
        }
    }

    /// By now `home` has the slot: the holder has what it had, and the waiter has asked there.
    async fn go_on_at(self, home: &Server) {
        let (token, guard) = (self.guard.token(), self.guard);
        let patience = Duration::from_secs(60);
        eventually_within(patience, "the waiter asks the new home", || {
            home.gauge("waiters") == 1
        });
        let hold = hold_of(&mut home.connect(), KEY, guard.owner()).unwrap();
        assert_eq!(hold.token as u64, token.get());
        guard.renew().await.unwrap();
        assert!(guard.is_valid() && !self.waiting.is_finished());
        guard.release().await.unwrap();
        let next = self.waiting.await.unwrap();
        assert!(next.token() > token);
        next.release().await.unwrap();
        await_free(&self.client, KEY).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_manual_failover_the_holder_keeps_its_lock_and_the_waiter_asks_again() {
    let cluster = Cluster::start_with_replicas(3, node);
    let scene = Scene::over(&cluster).await;
    let home = cluster.home_of(KEY);
    let (old, new) = (&cluster.primaries[home], &cluster.replicas[home]);
    wait_for_sync(old, new);
    cmd!(new.connect(), "CLUSTER", "FAILOVER");
    scene.go_on_at(new).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_the_death_of_a_primary_the_holder_keeps_its_lock_and_the_waiter_asks_again() {
    let mut cluster = Cluster::start_with_replicas(3, node);
    let scene = Scene::over(&cluster).await;
    let home = cluster.home_of(KEY);
    wait_for_sync(&cluster.primaries[home], &cluster.replicas[home]);
    cluster.primaries[home].sigkill();
    scene.go_on_at(&cluster.replicas[home]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_the_hang_of_a_primary_the_holder_keeps_its_lock_and_the_waiter_asks_again() {
    let cluster = Cluster::start_with_replicas(3, node);
    let scene = Scene::over(&cluster).await;
    let home = cluster.home_of(KEY);
    wait_for_sync(&cluster.primaries[home], &cluster.replicas[home]);
    cluster.primaries[home].stop_signal();
    scene.go_on_at(&cluster.replicas[home]).await;
    cluster.primaries[home].cont_signal();
}

#[tokio::test(flavor = "multi_thread")]
async fn when_its_slot_moves_the_holder_keeps_its_lock_and_the_waiter_asks_again() {
    let cluster = Cluster::start(3, node);
    let scene = Scene::over(&cluster).await;
    let (home, slot) = (cluster.home_of(KEY), cluster.slot_of(KEY));
    let (from, to) = (&cluster.primaries[home], &cluster.primaries[(home + 1) % 3]);
    begin_migration(slot, from, to);
    migrate(KEY, from, to);
    end_migration(slot, from, to);
    scene.go_on_at(to).await;
}

/// While a slot is on its way a request goes to the old node first, and from there to the new one. Whichever of them hangs,
/// what is given up there has gone when its name is left, and not only when its lease is over.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_is_given_up_while_its_slot_moves_leaves_nothing() {
    let cluster = Cluster::start(3, node);
    let (home, slot) = (cluster.home_of(KEY), cluster.slot_of(KEY));
    let (from, to) = (&cluster.primaries[home], &cluster.primaries[(home + 1) % 3]);
    begin_migration(slot, from, to);
    let connect = async || {
        let seeds = mortise_client::Server::cluster(cluster.nodes().map(Server::url)).unwrap();
        Client::connect(seeds).await.unwrap()
    };
    let other = connect().await;
    for hangs in [from, to] {
        let client = connect().await;
        // Both nodes are connected to by then.
        assert!(client.info(KEY).await.unwrap().is_none());
        let lock = client.lock(KEY).lease(Duration::from_secs(600));
        hangs.stop_signal();
        let given_up = tokio::time::timeout(ms(500), lock.try_acquire()).await;
        assert!(given_up.is_err(), "{given_up:?}");
        hangs.cont_signal();
        let closed = tokio::time::timeout(PATIENCE, client.close()).await;
        closed.expect("what was given up is left");
        assert!(other.info(KEY).await.unwrap().is_none());
        let guard = other.lock(KEY).try_acquire().await.unwrap();
        let guard = guard.expect("nobody holds it");
        guard.release().await.unwrap();
    }
    end_migration(slot, from, to);
}

/// Somebody waits for the lock, which takes a connection for letters, and gets it.
async fn hand_over(client: &Client) {
    let lock = client.lock(KEY).lease(Duration::from_secs(60));
    let guard = lock.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    await_waiters(client, KEY, 1).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
}

/// Whether a node says that the key's slot is at `home`.
fn knows_home(node: &Server, home: &Server) -> bool {
    match node.connect().try_cmd(&["EXISTS", KEY]) {
        Ok(_) => node.port() == home.port(),
        Err(moved) => moved.to_string().ends_with(&format!(":{}", home.port())),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn to_a_node_that_has_lost_its_slots_no_connection_stays_open() {
    // A node without slots would become a replica otherwise.
    let node = || node().config("cluster-allow-replica-migration", "no");
    let cluster = Cluster::start(3, node);
    let (home, slot) = (cluster.home_of(KEY), cluster.slot_of(KEY));
    let home = &cluster.primaries[home];
    let guest = cluster.add_empty(node);
    let seeds = mortise_client::Server::cluster(cluster.nodes().map(Server::url)).unwrap();
    let builder = Client::builder(seeds).unwrap().name("mover");
    let client = builder.connect().await.unwrap();
    let connections = || {
        let clients = text(&cmd!(guest.connect(), "CLIENT", "LIST"));
        clients.matches(" name=mover ").count()
    };
    for (from, to) in [(home, &guest), (&guest, home)].repeat(3) {
        begin_migration(slot, from, to);
        migrate(KEY, from, to);
        end_migration(slot, from, to);
        eventually_within(PATIENCE, "all nodes know where the slot is", || {
            let mut nodes = cluster.nodes().chain([&guest]);
            nodes.all(|node| knows_home(node, to))
        });
        hand_over(&client).await;
    }
    // The client finds out in the background which nodes have slots.
    eventually("no connection to the node without slots", async || {
        hand_over(&client).await;
        connections() == 0
    })
    .await;
}
