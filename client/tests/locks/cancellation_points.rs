//! Every future of the API, dropped after 0, 1, 2, … polls until it ends. It leaves no hold and no waiter, and each guard shows
//! what the server has.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Instant;

use mortise_client::{Client, Error, Guard, Lock, Loss, Mode, Quorum};
use mortise_harness::Server;

use crate::support::dropping::{Point, at_every_point, drop_at, points};
use crate::support::quorum::{Servers, quorum_of};
use crate::support::{await_free, await_waiters, client, eventually, ms, start};

/// Waits until the servers count what the guard shows, and releases it.
async fn assert_shows_its_hold(clients: &[Client], guard: Guard, point: Point) {
    assert!(guard.is_valid(), "{point:?}");
    // The server counts an upgraded reader in both modes.
    let is_right = |write: u64, read: u64| match guard.mode() {
        Mode::Write => write == 1,
        Mode::Read => (write, read) == (0, 1),
    };
    let mut right = 0;
    for client in clients {
        eventually("the counts are right, or nobody holds", || async {
            let info = client.info("k").await.unwrap();
            let hold = info.as_ref().and_then(|info| info.holds.first());
            hold.is_none_or(|hold| is_right(hold.write, hold.read))
        })
        .await;
        right += usize::from(client.info("k").await.unwrap().is_some());
    }
    assert!(right > clients.len() / 2, "{point:?}: on {right} servers");
    eventually("it can be renewed", || async {
        guard.renew().await.is_ok()
    })
    .await;
    guard.release().await.unwrap();
    for client in clients {
        await_free(client, "k").await;
    }
}

/// Runs the scenario for a lock on one server, and for one over a quorum: at every point until it returns that its future ended.
async fn at_every_point_of_each_kind(
    mut scenario: impl AsyncFnMut(&Lock, &[Client], Point) -> bool,
) {
    let (_server, one) = start().await;
    let (servers, quorum) = quorum_of(3).await;
    let both = [
        (one.lock("k"), vec![one]),
        (quorum.lock("k").lease(ms(30_000)), servers.clients().await),
    ];
    for (lock, clients) in &both {
        at_every_point(async |point| scenario(lock, clients, point).await).await;
    }
}

async fn all_free(clients: &[Client]) {
    for client in clients {
        await_free(client, "k").await;
    }
}

#[tokio::test]
async fn a_dropped_acquire_of_a_free_lock_leaves_nothing() {
    at_every_point_of_each_kind(async |lock, clients, point| {
        let ended = drop_at(lock.clone().acquire(), point).await;
        all_free(clients).await;
        ended
    })
    .await;
    at_every_point_of_each_kind(async |lock, clients, point| {
        let ended = drop_at(lock.clone().try_read(), point).await;
        all_free(clients).await;
        ended
    })
    .await;
}

#[tokio::test]
async fn a_dropped_acquire_of_a_taken_lock_leaves_no_waiter() {
    at_every_point_of_each_kind(async |lock, clients, point| {
        let holder = lock.clone().acquire().await.unwrap();
        let limited = lock.clone().wait(ms(4));
        let ended = drop_at(limited.acquire(), point).await;
        await_waiters(&clients[0], "k", 0).await;
        let tried = drop_at(lock.clone().try_acquire(), point).await;
        holder.release().await.unwrap();
        all_free(clients).await;
        ended && tried
    })
    .await;
}

#[tokio::test]
async fn a_dropped_change_of_mode_leaves_the_hold_that_the_guard_shows() {
    for upgrades in [true, false] {
        at_every_point_of_each_kind(async |lock, clients, point| {
            let lock = lock.clone();
            let (guard, ended) = if upgrades {
                let guard = lock.read().await.unwrap();
                let ended = drop_at(guard.upgrade(), point).await;
                (guard, ended)
            } else {
                let guard = lock.acquire().await.unwrap();
                let ended = drop_at(guard.downgrade(), point).await;
                (guard, ended)
            };
            match guard.loss() {
                // The outcome is unknown: the hold ends.
                Some(Loss::Unknown) => drop(guard),
                _ => assert_shows_its_hold(clients, guard, point).await,
            }
            all_free(clients).await;
            ended
        })
        .await;
    }
}

#[tokio::test]
async fn a_dropped_renewal_leaves_the_hold() {
    at_every_point_of_each_kind(async |lock, clients, point| {
        let guard = lock.clone().acquire().await.unwrap();
        let ended = drop_at(guard.renew(), point).await;
        assert_shows_its_hold(clients, guard, point).await;
        ended
    })
    .await;
}

#[tokio::test]
async fn a_dropped_release_frees_the_lock() {
    at_every_point_of_each_kind(async |lock, clients, point| {
        let guard = lock.clone().acquire().await.unwrap();
        let ended = drop_at(guard.release(), point).await;
        all_free(clients).await;
        ended
    })
    .await;
}

#[tokio::test]
async fn a_dropped_run_frees_the_lock() {
    at_every_point_of_each_kind(async |lock, clients, point| {
        let work = lock.clone().run(|held| async move {
            tokio::task::yield_now().await;
            held.check()
        });
        let ended = drop_at(work, point).await;
        all_free(clients).await;
        ended
    })
    .await;
}

/// Waits until the servers have no connection but this one.
async fn await_no_connections(servers: &[Server]) {
    let is_alone = |server: &Server| server.info("clients")["connected_clients"] == "1";
    eventually("the connections are closed", || async {
        servers.iter().all(is_alone)
    })
    .await;
}

#[tokio::test]
async fn a_dropped_connect_leaves_no_connection() {
    let servers = Servers::start(3);
    at_every_point(async |point| {
        let ended = drop_at(Client::connect(servers.0[0].url()), point).await;
        await_no_connections(&servers.0).await;
        ended
    })
    .await;
    at_every_point(async |point| {
        let ended = drop_at(Quorum::connect(servers.urls()), point).await;
        await_no_connections(&servers.0).await;
        ended
    })
    .await;
}

/// Polls and drops on this thread, which has no runtime and does not wait. The clean-up runs elsewhere.
fn drop_outside<F: Future>(future: F, point: Point) {
    assert!(tokio::runtime::Handle::try_current().is_err());
    let mut future = pin!(future);
    let started = Instant::now();
    let mut polled = 0;
    while match point {
        Point::Polls(polls) => polled < polls,
        Point::After(time) => started.elapsed() < time,
    } {
        let mut context = Context::from_waker(Waker::noop());
        if future.as_mut().poll(&mut context).is_ready() {
            return;
        }
        polled += 1;
        std::thread::yield_now();
    }
}

#[test]
fn futures_dropped_outside_a_runtime_leave_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let servers = Servers::start(3);
    let (one, quorum) = runtime.block_on(async {
        let one = client(&servers.0[0]).await;
        (one.lock("one"), servers.quorum().await.lock("quorum"))
    });
    let free = |key: &str| runtime.block_on(servers.await_free(key));
    for (lock, key) in [(one, "one"), (quorum, "quorum")] {
        for point in points().filter(|point| !matches!(point, Point::Polls(20..))) {
            drop_outside(lock.clone().acquire(), point);
            free(key);
            drop_outside(
                lock.clone()
                    .run(|_| std::future::pending::<Result<(), Error>>()),
                point,
            );
            free(key);
            let guard = runtime.block_on(lock.clone().acquire()).unwrap();
            drop_outside(lock.clone().acquire(), point);
            drop_outside(guard.renew(), point);
            drop_outside(guard.lost(), point);
            assert!(guard.is_valid());
            drop_outside(guard.downgrade(), point);
            drop_outside(guard.upgrade(), point);
            // The outcome is unknown: the hold ends.
            let loss = guard.loss();
            assert!(matches!(loss, None | Some(Loss::Unknown)), "{loss:?}");
            drop_outside(guard.release(), point);
            free(key);
        }
    }
}
