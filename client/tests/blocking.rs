//! The API for threads without a runtime.

#![cfg(feature = "blocking")]

mod support;

use mortise_client::blocking::{Client, Quorum};
use mortise_client::{Error, Loss, Mode, Released};
use mortise_harness::{Server, cmd, eventually};
use support::ms;
use support::quorum::Servers;

#[test]
fn a_thread_takes_renews_changes_and_gives_back_a_lock() {
    let server = Server::start();
    let client = Client::connect(server.url()).unwrap();
    let mut guard = client.lock("k").lease(ms(900)).read().unwrap();
    guard.upgrade().unwrap();
    assert_eq!(guard.mode(), Mode::Write);
    assert!(client.lock("k").try_acquire().unwrap().is_none());
    guard.renew_for(ms(1000)).unwrap();
    assert_eq!(guard.wait_lost(ms(2000)), None);
    guard.downgrade().unwrap();
    assert!(client.lock("k").try_read().unwrap().is_some());
    assert_eq!(guard.release().unwrap(), Released::Held);
}

#[test]
fn threads_that_want_the_same_lock_wait_for_each_other() {
    let server = Server::start();
    let client = Client::connect(server.url()).unwrap();
    let count = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let add = |_: &_| {
                        use std::sync::atomic::Ordering::Relaxed;
                        let seen = count.load(Relaxed);
                        std::thread::yield_now();
                        count.store(seen + 1, Relaxed);
                    };
                    client.lock("k").run(add).unwrap();
                }
            });
        }
    });
    assert_eq!(count.into_inner(), 80);
}

#[test]
fn a_thread_is_told_of_a_loss() {
    let server = Server::start();
    let client = Client::connect(server.url()).unwrap();
    let guard = client.lock("k").lease(ms(300)).acquire().unwrap();
    cmd!(server.connect(), "DEL", "k");
    assert_eq!(guard.wait_lost(ms(5000)), Some(Loss::Denied));
    let work = client.lock("k").run(|held| {
        cmd!(server.connect(), "DEL", "k");
        held.is_valid()
    });
    assert!(matches!(work, Err(Error::Lost(_))), "{work:?}");
}

#[tokio::test]
async fn it_works_inside_of_a_runtime_and_a_dropped_guard_releases() {
    let server = Server::start();
    let client = Client::connect(server.url()).unwrap();
    drop(client.lock("k").acquire().unwrap());
    eventually("the lock is free", || client.info("k").unwrap().is_none());
}

#[test]
fn a_quorum_can_be_used_by_threads() {
    let servers = Servers::start(3);
    let settings = servers.builder().node_timeout(ms(500));
    let quorum = Quorum::connect_with(settings).unwrap();
    let first = quorum.lock("k").acquire().unwrap();
    assert!(
        quorum
            .lock("k")
            .wait(ms(50))
            .acquire()
            .unwrap_err()
            .is_busy()
    );
    let token = first.token();
    assert_eq!(first.release().unwrap(), Released::Held);
    assert!(quorum.lock("k").acquire().unwrap().token() > token);
}
