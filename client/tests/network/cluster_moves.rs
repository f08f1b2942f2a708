//! A cluster whose slots move while a lock is held and another task waits for it.

use mortise_client::{Client, Error, Mode};
use mortise_harness::{
    Builder, Cluster, Resharding, Server, begin_migration, cmd, end_migration, eventually_within,
    migrate, node_id, queue_of, text, wait_for_sync,
};

use crate::failover::{KEY, Scene};
use crate::support::{PATIENCE, await_waiters, client_of_cluster, eventually_in, ms};

fn node() -> Builder {
    Server::builder().config("cluster-node-timeout", "2000")
}

/// A cluster of three primaries, and a lock there that is held and waited for.
async fn scene() -> (Resharding, Scene) {
    let moving = Resharding::within(Cluster::start(3, node), KEY);
    let scene = Scene::of(client_of_cluster(&moving.cluster).await).await;
    (moving, scene)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_slot_moves_the_holder_keeps_its_lock_and_the_waiter_queues_again() {
    let (moving, scene) = scene().await;
    moving.begin();
    moving.migrate();
    moving.end();
    scene.check_at(moving.to()).await;
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
    let (moving, scene) = scene().await;
    let from = moving.from();
    let before = queue_of(&mut from.connect(), KEY);
    moving.begin();
    let collections = collected(from);
    eventually_within(PATIENCE, "letters are collected", || {
        collected(from) > collections + 1
    });
    assert_eq!(queue_of(&mut from.connect(), KEY), before);
    moving.migrate();
    moving.end();
    scene.check_at(moving.to()).await;
}

/// A box is no key, so the node that has its slot sends its reader to the node that the slot migrates to. The lock, whose slot migrates too,
/// stays where it is for now: the other node would grant it again.
#[tokio::test(flavor = "multi_thread")]
async fn while_the_slots_of_its_box_and_its_key_migrate_a_waiter_waits_where_the_lock_is() {
    let (moving, scene) = scene().await;
    let (from, to) = (moving.from(), moving.to());
    let queue = || queue_of(&mut from.connect(), KEY);
    let before = queue();
    let mut monitor = from.connect();
    cmd!(monitor, "MONITOR");
    let mailbox = eventually_within(PATIENCE, "letters are collected", || {
        let line = text(&monitor.recv_within(PATIENCE).unwrap().unwrap());
        let (_, mailbox) = line.split_once("\"LOCK.MAIL\" \"")?;
        Some(mailbox.split('"').next()?.to_owned())
    });
    let slot = moving.cluster.slot_of(&mailbox);
    moving.begin();
    begin_migration(slot, from, to);
    eventually_within(PATIENCE, "the waiter asks again", || {
        let now = queue();
        scene.waiting.is_finished() || now != before && !now.is_empty()
    });
    assert!(!scene.waiting.is_finished(), "two hold the lock");
    end_migration(slot, from, to);
    moving.migrate();
    moving.end();
    scene.check_at(to).await;
}

/// While a slot migrates, a request goes to the old node first, and then to the new one. Whichever of them hangs, the LEAVE ends
/// the abandoned request there, before its lease is over.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_abandoned_while_its_slot_moves_leaves_nothing() {
    let moving = Resharding::within(Cluster::start(3, node), KEY);
    moving.begin();
    let other = client_of_cluster(&moving.cluster).await;
    for hangs in [moving.from(), moving.to()] {
        let client = client_of_cluster(&moving.cluster).await;
        // The client has connected to both nodes by then.
        assert!(client.info(KEY).await.unwrap().is_none());
        let lock = client.lock(KEY).lease(ms(600_000));
        hangs.stop_signal();
        let given_up = tokio::time::timeout(ms(500), lock.try_acquire()).await;
        assert!(given_up.is_err(), "{given_up:?}");
        hangs.cont_signal();
        let closed = tokio::time::timeout(PATIENCE, client.close(PATIENCE)).await;
        closed.expect("the LEAVE was answered");
        assert!(other.info(KEY).await.unwrap().is_none());
        let guard = other.lock(KEY).try_acquire().await.unwrap();
        let guard = guard.expect("nobody holds it");
        guard.release().await.unwrap();
    }
}

/// Each of two nodes says that the other one has the slot.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_is_sent_round_in_circles_fails() {
    let moving = Resharding::within(Cluster::start(3, node), KEY);
    let client = client_of_cluster(&moving.cluster).await;
    let (slot, id) = (moving.slot, node_id(moving.to()));
    let mut conn = moving.from().connect();
    cmd!(conn, "CLUSTER", "SETSLOT", slot, "NODE", id);
    let failed = tokio::time::timeout(PATIENCE, client.lock(KEY).try_acquire()).await;
    let error = failed.expect("it gives up").unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
}

/// Hands the lock over to a waiter, for which the client opens a connection for letters.
async fn hand_over(client: &Client) {
    let lock = client.lock(KEY).lease(ms(60_000));
    let guard = lock.clone().acquire().await.unwrap();
    let waiting = tokio::spawn(lock.acquire());
    await_waiters(client, KEY, 1).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
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
    let builder = Client::cluster(cluster.nodes().map(Server::url)).unwrap();
    let client = builder.name("mover").connect().await.unwrap();
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
    eventually_in(3 * PATIENCE, "no connection is left", async || {
        hand_over(&client).await;
        connections() == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_follows_its_key_while_its_slot_migrates_and_after() {
    for is_done in [false, true] {
        let moving = Resharding::within(Cluster::start(3, node), KEY);
        let client = client_of_cluster(&moving.cluster).await;
        let lock = client.lock(KEY).lease(ms(60_000)).auto_renew(false);
        let guard = lock.read().await.unwrap();
        moving.begin();
        moving.migrate();
        if is_done {
            moving.end();
        }
        let upgraded = tokio::time::timeout(PATIENCE, guard.upgrade()).await;
        upgraded.expect("it learns where the key is").unwrap();
        assert_eq!(guard.mode(), Mode::Write);
    }
}

/// Until the slot has moved, `ASK` sends everything about the key to a node whose replica does not have the slot either.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_confirms_a_lock_while_its_slot_migrates() {
    let moving = Resharding::within(Cluster::start_with_replicas(3, node), KEY);
    let cluster = &moving.cluster;
    for (primary, replica) in cluster.primaries.iter().zip(&cluster.replicas) {
        wait_for_sync(primary, replica);
    }
    let seeds = cluster.primaries.iter().map(Server::url);
    let builder = Client::cluster(seeds).unwrap().response_timeout(PATIENCE);
    let client = builder.replicas(1).connect().await.unwrap();
    let lock = client.lock(KEY).lease(ms(60_000)).wait(PATIENCE);
    let guard = lock.clone().acquire().await.unwrap();
    moving.begin();
    moving.migrate();
    let waits = moving.to().calls("wait");
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    let guard = lock.acquire().await.unwrap();
    assert!(moving.to().calls("wait") > waits, "a replica confirms it");
    moving.end();
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
}
