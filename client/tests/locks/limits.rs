//! Waits that end in time, invalid leases and limits, locks that stay taken after their guard, and a client's name.

use std::time::{Duration, Instant};

use mortise_client::{Client, Error};
use mortise_harness::Server;

use crate::support::proxy::Traffic;
use crate::support::{
    assert_invalid, await_free, await_waiters, client, client_within, ms, start, start_behind_proxy,
};

#[tokio::test]
async fn a_wait_ends_in_time_if_the_server_freezes_after_queueing_the_request() {
    let server = Server::start();
    let response = ms(1_000);
    let client = client_within(server.url(), response).await;
    let _holder = client.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let started = Instant::now();
    let waiting = tokio::spawn(client.lock("k").wait(ms(700)).acquire());
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
async fn what_no_server_could_grant_is_refused() {
    let (server, client) = start().await;
    let lock = || client.lock("k");
    let numbered = |count: u32| client.locks((0..count).map(|n| n.to_string()));
    let impossible = [
        lock().lease(ms(0)),
        lock().lease(ms(1)),
        lock().max_hold(ms(0)),
        lock().max_hold(Duration::from_micros(999)),
        numbered(0),
    ];
    for lock in impossible {
        assert_invalid(lock.acquire().await);
    }
    assert_invalid(numbered(3).read().await);
    // The server says how long a lease may be, and how many keys and permits there are.
    let mut refused = vec![
        (lock().lease(ms(1 << 50)), "lease"),
        (numbered(17), "numkeys must be an integer from 1 to 16"),
        (client.locks(["a", "a"]), "key 'a' is named twice"),
    ];
    for (permits, limit) in [(0, 10), (11, 10), (1, 0), (1, u32::MAX)] {
        refused.push((lock().permits(permits, limit), "must be"));
    }
    for (lock, why) in refused {
        let error = lock.acquire().await.unwrap_err();
        let says = matches!(&error, Error::Refused { message, .. } if message.contains(why));
        assert!(says, "{error:?}");
    }
    assert_eq!(server.gauge("total_grants"), 0);
    // A millisecond may be over by the time of the reply.
    let held = lock().max_hold(ms(1)).try_acquire().await;
    assert!(!matches!(held, Err(Error::Invalid(_))), "{held:?}");
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

#[tokio::test]
async fn a_lock_that_is_kept_stays_taken_for_that_long_and_no_longer_than_the_server_allows() {
    let server = Server::builder().module_arg("max-lease", "60000").start();
    let client = client(&server).await;
    let guard = client.lock("k").acquire().await.unwrap();
    let owner = guard.owner().to_vec();
    guard.keep_for(ms(60_000)).await.unwrap();
    let info = client.info("k").await.unwrap().unwrap();
    assert_ne!(info.holds[0].owner, owner);
    assert!(info.holds[0].lease > ms(50_000), "{info:?}");
    assert!(client.lock("k").try_acquire().await.unwrap().is_none());
    let guard = client.lock("other").acquire().await.unwrap();
    let refused = guard.keep_for(ms(60_001)).await.unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused:?}");
    crate::support::await_free(&client, "other").await;
    let several = client.locks(["{x}a", "{x}b"]).acquire().await.unwrap();
    several.keep_for(ms(60_000)).await.unwrap();
    for key in ["{x}a", "{x}b"] {
        assert!(client.lock(key).try_acquire().await.unwrap().is_none());
    }
}

/// If the reply is lost, the client leaves the lock under both names.
#[tokio::test]
async fn a_lock_that_may_or_may_not_be_kept_is_free() {
    let (_server, proxy, mine) = start_behind_proxy().await;
    let guard = mine.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    proxy.set(Traffic::LosesReplies);
    guard.keep_for(ms(600_000)).await.unwrap_err();
    proxy.set(Traffic::Flows);
    await_free(&mine, "k").await;
}
