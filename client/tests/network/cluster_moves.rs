//! A cluster whose slots move while a lock is held and another task waits for it.

use std::time::Duration;

use mortise_client::{Client, Error, Guard};
use mortise_harness::{
    Builder, Cluster, Server, begin_migration, cmd, end_migration, eventually_within, hold_of,
    migrate, queue_of, text, wait_for_sync,
};
use tokio::task::JoinHandle;

use crate::support::{PATIENCE, await_free, await_waiters, eventually_in, ms};

const KEY: &str = "key";

fn node() -> Builder {
    Server::builder().config("cluster-node-timeout", "2000")
}

/// A held lock, and a task that waits for it.
struct Scene {
    client: Client,
    guard: Guard,
    waiting: JoinHandle<Guard>,
}

impl Scene {
    async fn over(cluster: &Cluster) -> Scene {
        let client = Client::cluster(cluster.nodes().map(Server::url)).unwrap();
        let client = client.connect().await.unwrap();
        // Longer than any failover here takes.
        let lock = client.lock(KEY).lease(Duration::from_secs(60));
        let guard = lock.clone().acquire().await.unwrap();
        let waiting = tokio::spawn(async move { lock.clone().acquire().await.unwrap() });
        await_waiters(&client, KEY, 1).await;
        Scene {
            client,
            guard,
            waiting,
        }
    }

    /// Checks that the hold is on `home`, which has the slot by now, and that the waiter queues there. Then hands the lock over.
    async fn check_at(self, home: &Server) {
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
async fn after_a_manual_failover_the_holder_keeps_its_lock_and_the_waiter_queues_again() {
    let cluster = Cluster::start_with_replicas(3, node);
    let scene = Scene::over(&cluster).await;
    let home = cluster.home_of(KEY);
    let (old, new) = (&cluster.primaries[home], &cluster.replicas[home]);
    wait_for_sync(old, new);
    cmd!(new.connect(), "CLUSTER", "FAILOVER");
    scene.check_at(new).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_primary_dies_the_holder_keeps_its_lock_and_the_waiter_queues_again() {
    let mut cluster = Cluster::start_with_replicas(3, node);
    let scene = Scene::over(&cluster).await;
    let home = cluster.home_of(KEY);
    wait_for_sync(&cluster.primaries[home], &cluster.replicas[home]);
    cluster.primaries[home].sigkill();
    scene.check_at(&cluster.replicas[home]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_primary_hangs_the_holder_keeps_its_lock_and_the_waiter_queues_again() {
    let cluster = Cluster::start_with_replicas(3, node);
    let scene = Scene::over(&cluster).await;
    let home = cluster.home_of(KEY);
    wait_for_sync(&cluster.primaries[home], &cluster.replicas[home]);
    cluster.primaries[home].stop_signal();
    scene.check_at(&cluster.replicas[home]).await;
    cluster.primaries[home].cont_signal();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_slot_moves_the_holder_keeps_its_lock_and_the_waiter_queues_again() {
    let cluster = Cluster::start(3, node);
    let scene = Scene::over(&cluster).await;
    let (home, slot) = (cluster.home_of(KEY), cluster.slot_of(KEY));
    let (from, to) = (&cluster.primaries[home], &cluster.primaries[(home + 1) % 3]);
    begin_migration(slot, from, to);
    migrate(KEY, from, to);
    end_migration(slot, from, to);
    scene.check_at(to).await;
}

/// How many LOCK.MAIL commands a server has refused or run.
fn collected(server: &Server) -> u64 {
    let lines = server.info("commandstats");
    let of_mail = |name: &&String| name.eq_ignore_ascii_case("cmdstat_lock.mail");
    let fields = lines.keys().find(of_mail).map_or("", |name| &lines[name]);
    let numbers = fields.split(',').filter_map(|field| field.split_once('='));
    let counts = numbers.filter(|(name, _)| ["calls", "rejected_calls"].contains(name));
    counts.map(|(_, count)| count.parse::<u64>().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn while_its_slot_migrates_a_waiter_keeps_its_place() {
    let cluster = Cluster::start(3, node);
    let scene = Scene::over(&cluster).await;
    let (home, slot) = (cluster.home_of(KEY), cluster.slot_of(KEY));
    let (from, to) = (&cluster.primaries[home], &cluster.primaries[(home + 1) % 3]);
    let before = queue_of(&mut from.connect(), KEY);
    begin_migration(slot, from, to);
    let collections = collected(from);
    eventually_within(PATIENCE, "letters are collected", || {
        collected(from) > collections + 1
    });
    assert_eq!(queue_of(&mut from.connect(), KEY), before);
    migrate(KEY, from, to);
    end_migration(slot, from, to);
    scene.check_at(to).await;
}

/// A box is no key, so the node that has its slot sends its reader to the node that the slot migrates to. The lock stays where it is.
#[tokio::test(flavor = "multi_thread")]
async fn while_the_slot_of_its_box_migrates_a_waiter_waits_where_the_lock_is() {
    let cluster = Cluster::start(3, node);
    let scene = Scene::over(&cluster).await;
    let home = cluster.home_of(KEY);
    let (from, to) = (&cluster.primaries[home], &cluster.primaries[(home + 1) % 3]);
    let queue = || queue_of(&mut from.connect(), KEY);
    let before = queue();
    let mut monitor = from.connect();
    cmd!(monitor, "MONITOR");
    let mailbox = eventually_within(PATIENCE, "letters are collected", || {
        let line = text(&monitor.recv_within(PATIENCE).unwrap().unwrap());
        let (_, mailbox) = line.split_once("\"LOCK.MAIL\" \"")?;
        Some(mailbox.split('"').next()?.to_owned())
    });
    let slot = cluster.slot_of(&mailbox);
    begin_migration(slot, from, to);
    eventually_within(PATIENCE, "the waiter asks again", || {
        let now = queue();
        scene.waiting.is_finished() || now != before && !now.is_empty()
    });
    assert!(!scene.waiting.is_finished(), "two hold the lock");
    end_migration(slot, from, to);
    scene.check_at(from).await;
}

/// While a slot migrates, a request goes to the old node first, and then to the new one. Whichever of them hangs, the LEAVE ends
/// the abandoned request there, before its lease is over.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_abandoned_while_its_slot_moves_leaves_nothing() {
    let cluster = Cluster::start(3, node);
    let (home, slot) = (cluster.home_of(KEY), cluster.slot_of(KEY));
    let (from, to) = (&cluster.primaries[home], &cluster.primaries[(home + 1) % 3]);
    begin_migration(slot, from, to);
    let connect = async || {
        Client::cluster(cluster.nodes().map(Server::url))
            .unwrap()
            .connect()
            .await
            .unwrap()
    };
    let other = connect().await;
    for hangs in [from, to] {
        let client = connect().await;
        // The client has connected to both nodes by then.
        assert!(client.info(KEY).await.unwrap().is_none());
        let lock = client.lock(KEY).lease(Duration::from_secs(600));
        hangs.stop_signal();
        let given_up = tokio::time::timeout(ms(500), lock.clone().try_acquire()).await;
        assert!(given_up.is_err(), "{given_up:?}");
        hangs.cont_signal();
        let closed = tokio::time::timeout(PATIENCE, client.close(PATIENCE)).await;
        closed.expect("the LEAVE was answered");
        assert!(other.info(KEY).await.unwrap().is_none());
        let guard = other.lock(KEY).try_acquire().await.unwrap();
        let guard = guard.expect("nobody holds it");
        guard.release().await.unwrap();
    }
    end_migration(slot, from, to);
}

/// Each of two nodes says that the other one has the slot.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_is_sent_round_in_circles_fails() {
    let cluster = Cluster::start(3, node);
    let (home, slot) = (cluster.home_of(KEY), cluster.slot_of(KEY));
    let (home, other) = (&cluster.primaries[home], &cluster.primaries[(home + 1) % 3]);
    let client = Client::cluster(cluster.nodes().map(Server::url)).unwrap();
    let client = client.connect().await.unwrap();
    let id = text(&cmd!(other.connect(), "CLUSTER", "MYID"));
    cmd!(home.connect(), "CLUSTER", "SETSLOT", slot, "NODE", id);
    let failed = tokio::time::timeout(PATIENCE, client.lock(KEY).try_acquire()).await;
    let error = failed.expect("it gives up").unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
}

/// Hands the lock over to a waiter, for which the client opens a connection for letters.
async fn hand_over(client: &Client) {
    let lock = client.lock(KEY).lease(Duration::from_secs(60));
    let guard = lock.clone().acquire().await.unwrap();
    let waiting = tokio::spawn(async move { lock.clone().acquire().await.unwrap() });
    await_waiters(client, KEY, 1).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
}

/// Whether a node knows that `home` has the key's slot.
fn knows_home(node: &Server, home: &Server) -> bool {
    match node.connect().try_cmd(&["EXISTS", KEY]) {
        Ok(_) => node.port() == home.port(),
        Err(moved) => moved.to_string().ends_with(&format!(":{}", home.port())),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_connection_stays_open_to_a_node_that_lost_its_slots() {
    // A node without slots would become a replica otherwise.
    let node = || node().config("cluster-allow-replica-migration", "no");
    let cluster = Cluster::start(3, node);
    let (home, slot) = (cluster.home_of(KEY), cluster.slot_of(KEY));
    let home = &cluster.primaries[home];
    let guest = cluster.add_empty(node);
    let builder = Client::cluster(cluster.nodes().map(Server::url))
        .unwrap()
        .name("mover");
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
    // A request that is sent elsewhere has the client ask which nodes have slots.
    let limit = 3 * PATIENCE;
    eventually_in(
        limit,
        "no connection to the node without slots",
        async || {
            hand_over(&client).await;
            connections() == 0
        },
    )
    .await;
}
