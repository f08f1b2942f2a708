//! Futures and guards that are dropped, at any point and on any thread.

use std::cell::RefCell;
use std::time::Duration;

use mortise_client::{Client, Error, Guard, Loss, Owner};
use mortise_harness::{Server, cmd, eventually};

use crate::support::dropping::{Point, drop_at, points, poll_once};
use crate::support::proxy::Traffic;
use crate::support::{
    self, LATE, await_free, await_waiters, client, ms, start, start_behind_proxy,
};

/// A lease longer than the tests wait, so that a hold left behind shows.
const LONG: Duration = Duration::from_secs(600);

/// Fails if a hold or a waiter of the dropped future stays, or comes late.
async fn assert_nothing_left(client: &Client, key: &str, point: Point) {
    await_free(client, key).await;
    // No late request has taken the lock since.
    let guard = client.lock(key).wait(ms(2000)).acquire().await;
    let guard = guard.unwrap_or_else(|error| panic!("{point:?}: {error}"));
    assert_eq!(client.info(key).await.unwrap().unwrap().holders, 1);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn an_acquire_dropped_during_the_hand_off_leaves_nothing() {
    let (_server, client) = start().await;
    for point in points() {
        let holder = client.lock("k").acquire().await.unwrap();
        let mut waiting = Box::pin(client.lock("k").lease(LONG).acquire());
        assert!(poll_once(&mut waiting).await.is_pending());
        await_waiters(&client, "k", 1).await;
        drop(holder);
        drop_at(waiting, point).await;
        assert_nothing_left(&client, "k", point).await;
    }
}

#[tokio::test]
async fn a_release_dropped_before_its_connection_breaks_is_sent_again() {
    let (server, proxy, mine) = start_behind_proxy().await;
    let guard = mine.lock("k").lease(LONG).acquire().await.unwrap();
    proxy.set(Traffic::Stalls);
    assert!(!drop_at(guard.release(), Point::Polls(3)).await);
    proxy.set(Traffic::Cut);
    support::eventually("only this connection is left", || async {
        server.info("clients")["connected_clients"] == "1"
    })
    .await;
    proxy.set(Traffic::Flows);
    await_free(&client(&server).await, "k").await;
}

#[tokio::test]
async fn an_upgrade_dropped_while_it_waits_leaves_the_hold_that_the_guard_shows_and_no_waiter() {
    let (_server, client) = start().await;
    for point in points() {
        let other = client.lock("k").read().await.unwrap();
        let guard = client.lock("k").read().await.unwrap();
        drop_at(guard.upgrade(), point).await;
        if guard.is_valid() {
            guard.renew().await.unwrap();
            guard.release().await.unwrap();
        } else {
            // The outcome is unknown, so the client sends LEAVE.
            assert_eq!(guard.loss(), Some(Loss::Unknown));
            drop(guard);
        }
        drop(other);
        assert_nothing_left(&client, "k", point).await;
    }
}

#[tokio::test]
async fn an_acquire_dropped_behind_a_slow_network_leaves_nothing() {
    let (server, proxy, client) = start_behind_proxy().await;
    let direct = support::client(&server).await;
    for n in 1..=5 {
        proxy.set(Traffic::Stalls);
        let taken = tokio::time::timeout(ms(20), client.lock("k").acquire()).await;
        assert!(taken.is_err());
        proxy.set(Traffic::Flows);
        let has_come = async || server.calls("LOCK.LEAVE") >= n;
        support::eventually("the LEAVE has followed the acquire", has_come).await;
        await_free(&direct, "k").await;
    }
}

#[tokio::test]
async fn a_cancelled_owner_can_ask_again() {
    let (_server, client) = start().await;
    let owner = Owner::new();
    let lock = client.lock("k").owner(&owner);
    let holder = client.lock("k").acquire().await.unwrap();
    let given_up = tokio::time::timeout(ms(30), lock.clone().acquire()).await;
    assert!(given_up.is_err());
    drop(holder);
    assert!(lock.acquire().await.unwrap().is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_guard_dropped_outside_of_any_runtime_releases_in_the_background() {
    let (_server, client) = start().await;
    let guard = client.lock("k").acquire().await.unwrap();
    std::thread::spawn(move || {
        assert!(tokio::runtime::Handle::try_current().is_err());
        drop(guard);
    })
    .join()
    .unwrap();
    await_free(&client, "k").await;
}

/// A thread that ends drops its variables after what tokio keeps for it, if they were used before that.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_guard_in_a_variable_of_a_thread_is_released_when_the_thread_ends() {
    thread_local! {
        static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) };
    }
    let (_server, client) = start().await;
    let (runtime, lock) = (
        tokio::runtime::Handle::current(),
        client.lock("k").lease(LONG),
    );
    let ended = std::thread::spawn(move || {
        KEPT.set(None);
        KEPT.set(Some(runtime.block_on(lock.acquire()).unwrap()));
    });
    ended.join().unwrap();
    await_free(&client, "k").await;
}

#[test]
fn a_guard_that_outlives_its_runtime_reports_its_loss_and_can_be_dropped() {
    let server = Server::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (client, guard) = runtime.block_on(async {
        let client = client(&server).await;
        let guard = client.lock("k").lease(ms(300)).acquire().await.unwrap();
        (client, guard)
    });
    drop(runtime);
    // Nothing renews the guard any more.
    eventually("it knows that its lease is over", || {
        guard.loss() == Some(Loss::Expired)
    });
    let other = tokio::runtime::Runtime::new().unwrap();
    let error = other.block_on(client.lock("k").acquire()).unwrap_err();
    assert!(matches!(error, Error::RuntimeGone), "{error:?}");
    drop(guard);
}

#[test]
fn a_wait_ends_with_the_runtime_that_its_client_was_built_in() {
    let server = Server::start();
    let [runtime, other] = [(); 2].map(|()| tokio::runtime::Runtime::new().unwrap());
    let client = runtime.block_on(client(&server));
    let holder = runtime.block_on(client.lock("k").acquire()).unwrap();
    let waiting = other.spawn(client.lock("k").acquire());
    runtime.block_on(await_waiters(&client, "k", 1));
    drop(runtime);
    let ended = other.block_on(async { tokio::time::timeout(LATE, waiting).await });
    let ended = ended.expect("it ends").unwrap();
    assert!(matches!(ended, Err(Error::RuntimeGone)), "{ended:?}");
    drop(holder);
}

#[tokio::test]
async fn a_panic_under_the_lock_releases_it() {
    let (_server, client) = start().await;
    let lock = client.lock("k");
    let work = tokio::spawn(async move {
        let _guard = lock.clone().acquire().await.unwrap();
        panic!("as intended");
    });
    assert!(work.await.unwrap_err().is_panic());
    await_free(&client, "k").await;
}

#[tokio::test]
async fn work_in_run_holds_the_lock_and_releases_it_at_the_end() {
    let (_server, client) = start().await;
    let lock = client.lock("k");
    let value = lock
        .run(|held| {
            let client = client.clone();
            async move {
                let token = held.check()?;
                Ok::<_, Error>(client.info("k").await?.unwrap().holds[0].token == token)
            }
        })
        .await;
    assert!(value.unwrap());
    assert_eq!(client.info("k").await.unwrap(), None);
}

#[tokio::test]
async fn work_in_run_is_cancelled_when_the_lock_is_lost() {
    let (server, client) = start().await;
    let lock = client.lock("k").lease(ms(6_000));
    let work = lock.clone().run(|_| async {
        cmd!(server.connect(), "DEL", "k");
        std::future::pending::<Result<(), Error>>().await
    });
    let error = work.await.unwrap_err();
    assert!(matches!(error, Error::Lost(Loss::Denied)), "{error:?}");
}

#[tokio::test]
async fn work_in_run_that_ends_after_the_lock_was_lost_is_an_error() {
    let (_server, client) = start().await;
    let lock = client.lock("k").lease(ms(200));
    // Never yields, so that nothing can cancel it.
    let error = lock
        .run(|_| async {
            std::thread::sleep(ms(300));
            Ok::<_, Error>(())
        })
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Lost(_)), "{error:?}");
}

#[tokio::test]
async fn work_in_run_that_fails_returns_its_own_error_though_the_lock_is_gone() {
    let (server, client) = start().await;
    let lock = client.lock("k");
    let failed = lock.run(|_| async {
        cmd!(server.connect(), "DEL", "k");
        Err::<(), _>(Error::Invalid("its own".into()))
    });
    let error = failed.await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
}
