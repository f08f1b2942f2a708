//! Confirmed holds: a guard relies on what enough replicas have.

use mortise_client::{Client, Error, Guard, Loss, Mode, Quorum};
use mortise_harness::{Server, cmd, is_nil, wait_for_sync};

use crate::support::{PATIENCE, assert_invalid, eventually, ms};

fn pair() -> (Server, Server) {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    wait_for_sync(&primary, &replica);
    (primary, replica)
}

/// A client that relies on what this many replicas have.
async fn client(server: &Server, replicas: u32) -> Client {
    let builder = Client::builder(server.url()).unwrap();
    let builder = builder.response_timeout(PATIENCE).replicas(replicas);
    builder.connect().await.unwrap()
}

async fn await_renewal(guard: &Guard) {
    let before = guard.deadline();
    eventually("it is renewed", || async { guard.deadline() > before }).await;
}

#[tokio::test]
async fn a_guard_has_been_confirmed_by_a_replica_and_so_is_each_renewal() {
    let (primary, replica) = pair();
    let client = client(&primary, 1).await;
    let lock = client.lock("k").lease(ms(6_000));
    let guard = lock.clone().acquire().await.unwrap();
    let waits = primary.calls("wait");
    assert!(waits >= 2, "one on the new connection, one for the grant");
    let held = cmd!(replica.connect(), "LOCK.INFO", "k");
    assert!(!is_nil(&held), "the replica has it");
    await_renewal(&guard).await;
    assert!(primary.calls("wait") > waits);
    guard.renew().await.unwrap();
    let waiting = tokio::spawn(lock.acquire());
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn without_enough_replicas_nothing_is_granted_and_the_error_says_how_many_had_it() {
    let (primary, _replica) = pair();
    let client = client(&primary, 2).await;
    let error = client.lock("k").try_acquire().await.unwrap_err();
    let is_it = matches!(error, Error::Unconfirmed { needed: 2, had: 1 });
    assert!(is_it, "{error:?}");
    assert!(error.is_transient());
    eventually("it was given back", || async {
        is_nil(&cmd!(primary.connect(), "LOCK.INFO", "k"))
    })
    .await;
    let late = client.lock("k").wait(ms(500)).acquire().await;
    assert!(matches!(late, Err(Error::Unconfirmed { .. })), "{late:?}");
}

#[tokio::test]
async fn an_acquisition_is_tried_again_until_a_replica_is_attached() {
    let primary = Server::start();
    let client = client(&primary, 1).await;
    let waiting = tokio::spawn(client.lock("k").wait(3 * PATIENCE).acquire());
    eventually("it was asked for", || async { primary.calls("wait") > 0 }).await;
    let replica = Server::builder().replica_of(&primary).start();
    let guard = waiting.await.unwrap().unwrap();
    let held = cmd!(replica.connect(), "LOCK.INFO", "k");
    assert!(!is_nil(&held), "the replica has it");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_guard_whose_renewals_reach_no_replica_is_lost_at_its_deadline() {
    let (primary, replica) = pair();
    let client = client(&primary, 1).await;
    let guard = client.lock("k").lease(ms(3_000)).acquire().await.unwrap();
    await_renewal(&guard).await;
    replica.stop_signal();
    let loss = tokio::time::timeout(PATIENCE, guard.lost()).await.unwrap();
    assert_eq!(loss, Loss::Expired, "though the primary renews it");
    let error = client.lock("l").try_acquire().await.unwrap_err();
    let is_it = matches!(error, Error::Unconfirmed { needed: 1, had: 0 });
    assert!(is_it, "{error:?}");
    replica.cont_signal();
    drop(guard);
    let again = client.lock("k").wait(3 * PATIENCE).acquire().await;
    again.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_guard_outlives_a_replica_that_is_detached_for_less_than_its_lease() {
    let (primary, replica) = pair();
    let client = client(&primary, 1).await;
    let guard = client.lock("k").lease(ms(9_000)).acquire().await.unwrap();
    cmd!(replica.connect(), "REPLICAOF", "NO", "ONE");
    eventually("a renewal is not confirmed", || async {
        matches!(guard.renew().await, Err(Error::Unconfirmed { had: 0, .. }))
    })
    .await;
    let port = primary.port().to_string();
    cmd!(replica.connect(), "REPLICAOF", "127.0.0.1", port);
    eventually("one is again", || async { guard.renew().await.is_ok() }).await;
    assert!(guard.is_valid());
}

#[tokio::test]
async fn an_upgrade_several_keys_permits_and_what_is_taken_over_are_confirmed() {
    let (primary, replica) = pair();
    let client = client(&primary, 1).await;
    let guard = client.lock("k").read().await.unwrap();
    let waits = primary.calls("wait");
    let read = guard.token();
    guard.upgrade().await.unwrap();
    assert!(primary.calls("wait") > waits && guard.token() > read);
    let several = client.locks(["a", "b"]).acquire().await.unwrap();
    let permits = client.lock("p").permits(2, 3).acquire().await.unwrap();
    let token = guard.pass_to("job", ms(60_000)).await.unwrap();
    let taken = client.lock("k").take_over("job", token).await.unwrap();
    assert_eq!(taken.mode(), Mode::Write);
    for key in ["a", "b", "p", "k"] {
        let held = cmd!(replica.connect(), "LOCK.INFO", key);
        assert!(!is_nil(&held), "the replica has {key}");
    }
    taken.keep_for(ms(60_000)).await.unwrap();
    let held = cmd!(replica.connect(), "LOCK.INFO", "k");
    assert!(!is_nil(&held), "it stays taken, on the replica, too");
    // Without the replica the reader is none any more once it has become a writer that nobody has confirmed.
    let reader = client.lock("r").read().await.unwrap();
    replica.stop_signal();
    let upgraded = reader.upgrade().await;
    assert!(
        matches!(upgraded, Err(Error::Unconfirmed { .. })),
        "{upgraded:?}"
    );
    assert_eq!(reader.loss(), Some(Loss::Unknown));
    replica.cont_signal();
    drop((several, permits));
}

#[tokio::test]
async fn a_quorum_has_no_replicas_that_confirm() {
    let urls = ["redis://a/", "redis://b/", "redis://c/"];
    let builder = Quorum::builder(urls).unwrap();
    assert_invalid(builder.replicas(1).build());
}
