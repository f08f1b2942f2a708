//! The API for threads without a runtime.

use mortise_client::blocking::{Client, Quorum};
use mortise_client::{Error, Loss, Mode, Owner, Released};
use mortise_harness::{Server, cmd, eventually};

use crate::support::ms;
use crate::support::quorum::Servers;

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
                        Ok::<_, Error>(())
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
    let guard = client.lock("k").lease(ms(3000)).acquire().unwrap();
    cmd!(server.connect(), "DEL", "k");
    assert_eq!(guard.wait_lost(ms(30_000)), Some(Loss::Denied));
    let work = client.lock("k").run(|held| {
        cmd!(server.connect(), "DEL", "k");
        held.check()
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

#[test]
fn readers_run_together_and_a_view_of_the_guard_goes_to_another_thread() {
    let server = Server::start();
    let client = Client::connect(server.url()).unwrap();
    let lock = client.lock("k");
    let inner = lock.run_read(|outer| {
        assert_eq!(outer.mode(), Mode::Read);
        lock.run_read(|inner| Ok::<_, Error>(inner.token() > outer.token()))
    });
    assert!(inner.unwrap());
    let guard = lock.lease(ms(300)).auto_renew(false).acquire().unwrap();
    let held = guard.held();
    let watching = std::thread::spawn(move || {
        while held.is_valid() {
            std::thread::yield_now();
        }
        held.loss()
    });
    assert_eq!(guard.lost(), Loss::Expired);
    assert_eq!(watching.join().unwrap(), Some(Loss::Expired));
}

#[test]
fn an_upgrade_that_cannot_be_had_in_time_leaves_the_reader_a_reader() {
    let server = Server::start();
    let client = Client::connect(server.url()).unwrap();
    let other = client.lock("k").read().unwrap();
    let mut guard = client.lock("k").read().unwrap();
    assert!(guard.upgrade_within(ms(0)).unwrap_err().error.is_busy());
    assert!(guard.upgrade_within(ms(50)).unwrap_err().error.is_busy());
    guard.renew().unwrap();
    assert_eq!(guard.mode(), Mode::Read);
    drop(other);
    guard.upgrade().unwrap();
    assert_eq!(guard.release().unwrap(), Released::Held);
}

#[test]
fn a_thread_with_an_owner_enters_its_lock_again_and_is_told_of_deadlocks() {
    let server = Server::start();
    let client = Client::connect(server.url()).unwrap();
    let (a, b) = (Owner::new(), Owner::new());
    let lock = client.lock("1").owner(&a);
    let outer = lock.acquire().unwrap();
    assert!(matches!(lock.acquire(), Err(Error::AlreadyHeld)));
    let inner = lock.reentrant().acquire().unwrap();
    assert_eq!(inner.token(), outer.token());
    let second = client.lock("2").owner(&b).acquire().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| client.lock("2").owner(&a).wait(ms(20_000)).acquire());
        eventually("it waits", || {
            client.info("2").unwrap().unwrap().waiters == 1
        });
        let error = client.lock("1").owner(&b).acquire().unwrap_err();
        assert!(matches!(error, Error::Deadlock(_)), "{error:?}");
        drop(second);
        assert!(waiting.join().unwrap().is_ok());
    });
}

#[test]
fn a_task_of_a_runtime_may_block_as_often_as_it_likes() {
    let server = Server::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = Client::connect(server.url()).unwrap();
        for _ in 0..1_000 {
            client.lock("k").acquire().unwrap().release().unwrap();
        }
    });
}
