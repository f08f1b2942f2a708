//! Waits that end in time, invalid leases and limits, `at_least`, and a client's name.

use std::time::{Duration, Instant};

use mortise_client::{Client, Error, Owner};
use mortise_harness::Server;

use crate::support::{LATE, await_waiters, client, ms};

#[tokio::test]
async fn a_re_entrant_owner_waits_behind_its_own_request_no_longer_than_its_limit() {
    let server = Server::start();
    let (client, direct) = (client(&server).await, client(&server).await);
    let _holder = direct.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let lock = client.lock("k").owner(&Owner::new()).reentrant();
    let other = lock.clone();
    let waiting = tokio::spawn(async move { other.acquire().await });
    await_waiters(&direct, "k", 1).await;
    let started = Instant::now();
    assert!(lock.try_acquire().await.unwrap().is_none());
    let busy = lock.clone().wait(ms(300)).acquire().await.unwrap_err();
    assert!(busy.is_busy(), "{busy:?}");
    assert!(started.elapsed() < LATE, "{:?}", started.elapsed());
    waiting.abort();
}

#[tokio::test]
async fn a_reader_can_reenter_while_its_owner_waits_for_an_upgrade() {
    let server = Server::start();
    let (client, direct) = (client(&server).await, client(&server).await);
    let lock = client.lock("k").owner(&Owner::new()).reentrant();
    let mut reader = lock.read().await.unwrap();
    let _other = direct.lock("k").lease(ms(60_000)).read().await.unwrap();
    let upgrading = tokio::spawn(async move { reader.upgrade().await });
    await_waiters(&direct, "k", 1).await;
    let again = tokio::time::timeout(LATE, lock.try_read()).await;
    assert!(again.expect("it waits for the upgrade").unwrap().is_some());
    upgrading.abort();
}

#[tokio::test]
async fn a_wait_ends_in_time_if_the_server_freezes_after_queueing_the_request() {
    let server = Server::start();
    let response = ms(1_000);
    let builder = Client::builder(server.url()).unwrap();
    let client = builder.response_timeout(response).connect().await.unwrap();
    let _holder = client.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let started = Instant::now();
    let lock = client.lock("k").wait(ms(700));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    await_waiters(&client, "k", 1).await;
    server.stop_signal();
    let error = waiting.await.unwrap().unwrap_err();
    let took = started.elapsed();
    server.cont_signal();
    assert!(error.is_transient(), "{error:?}");
    assert!(
        took < ms(700) + response + Duration::from_secs(1),
        "{took:?}"
    );
}

#[tokio::test]
async fn leases_and_limits_that_are_too_short_are_refused() {
    let server = Server::start();
    let client = client(&server).await;
    let lock = client.lock("k");
    for refused in [
        lock.clone().lease(ms(1)).acquire().await,
        lock.clone().max_hold(ms(0)).acquire().await,
    ] {
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
}

#[tokio::test]
async fn a_lock_with_at_least_stays_taken_that_long_after_an_early_release() {
    let server = Server::start();
    let client = client(&server).await;
    let lock = client.lock("k").at_least(ms(60_000));
    let guard = lock.acquire().await.unwrap();
    let owner = guard.owner().to_vec();
    guard.release().await.unwrap();
    let info = client.info("k").await.unwrap().unwrap();
    assert_ne!(info.holds[0].owner, owner);
    assert!(info.holds[0].lease > ms(50_000), "{info:?}");
    assert!(lock.try_acquire().await.unwrap().is_none());
}

#[tokio::test]
async fn connections_and_owners_show_the_name_of_the_client() {
    let server = Server::start();
    let builder = Client::builder(server.url()).unwrap().name("billing-7");
    let client = builder.connect().await.unwrap();
    let _guard = client.lock("k").acquire().await.unwrap();
    let info = client.info("k").await.unwrap().unwrap();
    assert!(info.holds[0].owner.starts_with(b"billing-7:"));
    let list = mortise_harness::text(&mortise_harness::cmd!(server.connect(), "CLIENT", "LIST"));
    assert!(list.contains(" name=billing-7 "), "{list}");
    assert_eq!(format!("{client:?}").lines().count(), 1);
}

#[tokio::test]
async fn a_name_of_a_client_that_nobody_could_read_is_refused() {
    let longest = "n".repeat(100);
    for name in ["", "two words", "ümlaut", "line\n", &format!("{longest}n")] {
        let builder = Client::builder("redis://127.0.0.1:1/").unwrap().name(name);
        let refused = builder.connect().await.unwrap_err();
        let is_invalid =
            matches!(&refused, Error::Invalid(why) if why.contains("1 to 100 printable"));
        assert!(is_invalid, "{name:?}: {refused}");
    }
    let server = Server::start();
    let builder = Client::builder(server.url()).unwrap().name(longest);
    builder.connect().await.unwrap();
}
