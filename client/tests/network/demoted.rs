//! Another server takes over behind a fixed address, as behind a proxy or a service of Kubernetes, and connections stay open to the
//! old primary.

use mortise_client::Error;
use mortise_harness::{Link, Server, cmd, wait_for_sync};

use crate::failover::Scene;
use crate::support::{client, client_of, ms};

/// A primary behind a link, and its replica.
fn scene() -> (Server, Server, Link) {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    wait_for_sync(&primary, &replica);
    let link = Link::to(&primary);
    (primary, replica, link)
}

fn url(link: &Link) -> String {
    format!("redis://127.0.0.1:{}/", link.port())
}

/// Swaps the roles, and leads new connections to the new primary.
fn switch(primary: &Server, replica: &Server, link: &Link) {
    cmd!(replica.connect(), "REPLICAOF", "NO", "ONE");
    link.lead_to(replica);
    cmd!(primary.connect(), "REPLICAOF", "127.0.0.1", replica.port());
}

#[tokio::test]
async fn a_waiting_request_that_a_demoted_server_refuses_is_granted_by_the_new_primary() {
    let (primary, replica, link) = scene();
    let mine = client_of(&url(&link)).await;
    let lock = mine.lock("k").wait(ms(20_000));
    let guard = lock.clone().acquire().await.unwrap();
    guard.release().await.unwrap();
    switch(&primary, &replica, &link);
    let guard = lock.clone().acquire().await.unwrap();
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_request_without_wait_is_refused_once_and_the_next_one_is_granted() {
    let (primary, replica, link) = scene();
    let mine = client_of(&url(&link)).await;
    mine.lock("k").try_acquire().await.unwrap();
    switch(&primary, &replica, &link);
    let refused = mine.lock("other").try_acquire().await.unwrap_err();
    assert!(matches!(&refused, Error::Refused { code, .. } if code == "READONLY"));
    let guard = mine.lock("other").try_acquire().await.unwrap();
    assert!(guard.unwrap().is_valid());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_and_its_waiter_move_to_the_new_primary() {
    let (primary, replica, link) = scene();
    let scene = Scene::of(client_of(&url(&link)).await).await;
    wait_for_sync(&primary, &replica);
    switch(&primary, &replica, &link);
    scene.check_at(&replica).await;
}

#[tokio::test]
async fn a_client_of_a_replica_does_not_connect_again_for_each_request() {
    let (_primary, replica, _link) = scene();
    let mine = client(&replica).await;
    let connections = || -> u64 {
        let made = &replica.info("stats")["total_connections_received"];
        made.parse().unwrap()
    };
    let (before, began) = (connections(), std::time::Instant::now());
    for _ in 0..300 {
        let refused = mine.lock("k").try_acquire().await;
        assert!(refused.is_err(), "{refused:?}");
    }
    // The client connects again five times in a second at most. Each check makes a connection, too.
    let made = connections() - before;
    let most = 3 + began.elapsed().as_millis() as u64 / 200;
    assert!((2..=most).contains(&made), "{made} connections of {most}");
}
