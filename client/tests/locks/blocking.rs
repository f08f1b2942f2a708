//! The API for threads without a runtime.

use mortise_client::blocking::{Guard, Wait};
use mortise_client::{Client, Error, Loss, Mode, Owner};
use mortise_harness::redis::Value;
use mortise_harness::{Server, cmd, eventually};

use crate::support::ms;
use crate::support::quorum::Servers;

fn connect(server: &Server) -> Client {
    Client::connect(server.url()).wait().unwrap()
}

#[test]
fn a_thread_acquires_renews_changes_and_releases_a_lock() {
    let server = Server::start();
    let client = connect(&server);
    let mut guard = Guard::from(client.lock("k").lease(ms(3_000)).read().wait().unwrap());
    guard.upgrade().wait().unwrap();
    assert_eq!(guard.mode(), Mode::Write);
    assert!(client.lock("k").try_acquire().wait().unwrap().is_none());
    guard.renew_for(ms(3_000)).wait().unwrap();
    assert_eq!(guard.lost().wait_up_to(ms(4_000)), None);
    guard.downgrade().wait().unwrap();
    assert!(client.lock("k").try_read().wait().unwrap().is_some());
    guard.release().unwrap();
}

#[test]
fn a_dropped_guard_waits_until_the_server_has_released_the_lock() {
    let server = Server::start();
    let client = connect(&server);
    let guard = client.lock("k").acquire().wait_guard().unwrap();
    cmd!(server.connect(), "CLIENT", "PAUSE", 1_000, "WRITE");
    drop(guard);
    assert_eq!(cmd!(server.connect(), "LOCK.INFO", "k"), Value::Nil);
}

#[test]
fn a_dropped_guard_waits_until_a_majority_has_released_the_lock() {
    let servers = Servers::start(3);
    let quorum = servers.builder().node_timeout(ms(5_000)).connect();
    let lock = quorum.wait().unwrap().lock("k").lease(ms(60_000));
    let guard = lock.acquire().wait_guard().unwrap();
    for server in &servers.0 {
        cmd!(server.connect(), "CLIENT", "PAUSE", 1_000, "WRITE");
    }
    drop(guard);
    assert!(servers.taken("k").len() <= 1);
}

#[test]
fn threads_that_want_the_same_lock_wait_for_each_other() {
    let server = Server::start();
    let client = connect(&server);
    let count = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let add = async |_| {
                        use std::sync::atomic::Ordering::Relaxed;
                        let seen = count.load(Relaxed);
                        std::thread::yield_now();
                        count.store(seen + 1, Relaxed);
                        Ok::<_, Error>(())
                    };
                    client.lock("k").run(add).wait().unwrap();
                }
            });
        }
    });
    assert_eq!(count.into_inner(), 80);
}

#[test]
fn a_thread_can_wait_for_the_loss_of_its_lock() {
    let server = Server::start();
    let client = connect(&server);
    let guard = client
        .lock("k")
        .lease(ms(3000))
        .acquire()
        .wait_guard()
        .unwrap();
    cmd!(server.connect(), "DEL", "k");
    assert_eq!(guard.lost().wait_up_to(ms(30_000)), Some(Loss::Denied));
    let lock = client.lock("k");
    let work = lock.run(async |held| {
        cmd!(server.connect(), "DEL", "k");
        held.check()
    });
    let work = work.wait();
    assert!(matches!(work, Err(Error::Lost(_))), "{work:?}");
}

#[tokio::test]
async fn the_blocking_api_works_inside_a_runtime_and_a_dropped_guard_releases() {
    let server = Server::start();
    let client = connect(&server);
    drop(client.lock("k").acquire().wait_guard().unwrap());
    eventually("the lock is free", || {
        client.info("k").wait().unwrap().is_none()
    });
}

#[test]
fn a_quorum_can_be_used_by_threads() {
    let servers = Servers::start(3);
    let settings = servers.builder().node_timeout(ms(500));
    let quorum = settings.connect().wait().unwrap();
    let first = quorum.lock("k").acquire().wait_guard().unwrap();
    let busy = quorum.lock("k").wait(ms(50)).acquire().wait();
    assert!(busy.unwrap_err().is_busy());
    let token = first.token();
    first.release().unwrap();
    assert!(quorum.lock("k").acquire().wait().unwrap().token() > token);
}

#[test]
fn readers_run_together_and_held_can_be_sent_to_another_thread() {
    let server = Server::start();
    let client = connect(&server);
    let lock = client.lock("k");
    let inner = lock.run_read(async |outer| {
        assert_eq!(outer.mode(), Mode::Read);
        let inner = lock.run_read(async |inner| Ok::<_, Error>(inner.token() > outer.token()));
        inner.await
    });
    assert!(inner.wait().unwrap());
    let lock = client.lock("k").lease(ms(300)).auto_renew(false);
    let guard = lock.acquire().wait_guard().unwrap();
    let held = guard.held();
    let watching = std::thread::spawn(move || {
        while held.is_valid() {
            std::thread::yield_now();
        }
        held.loss()
    });
    assert_eq!(guard.lost().wait(), Loss::Expired);
    assert_eq!(watching.join().unwrap(), Some(Loss::Expired));
}

#[test]
fn an_upgrade_that_times_out_leaves_the_read_hold() {
    let server = Server::start();
    let client = connect(&server);
    let other = client.lock("k").read().wait_guard().unwrap();
    let mut guard = client.lock("k").read().wait_guard().unwrap();
    for limit in [ms(0), ms(50)] {
        let refused = guard.upgrade_within(limit).wait().unwrap_err();
        assert!(refused.error.is_busy());
    }
    guard.renew().wait().unwrap();
    assert_eq!(guard.mode(), Mode::Read);
    drop(other);
    guard.upgrade().wait().unwrap();
    guard.release().unwrap();
}

#[test]
fn a_thread_with_an_owner_can_reenter_and_gets_deadlock_errors() {
    let server = Server::start();
    let client = connect(&server);
    let (a, b) = (Owner::new(), Owner::new());
    let lock = client.lock("1").owner(&a);
    let outer = lock.acquire().wait_guard().unwrap();
    assert!(matches!(lock.acquire().wait(), Err(Error::AlreadyHeld)));
    let inner = lock.reentrant().acquire().wait_guard().unwrap();
    assert_eq!(inner.token(), outer.token());
    let second = client.lock("2").owner(&b).acquire().wait_guard().unwrap();
    std::thread::scope(|scope| {
        let lock = client.lock("2").owner(&a).wait(ms(20_000));
        let waiting = scope.spawn(move || lock.acquire().wait_guard());
        eventually("it waits", || {
            client.info("2").wait().unwrap().unwrap().waiters == 1
        });
        let error = client.lock("1").owner(&b).acquire().wait().unwrap_err();
        assert!(matches!(error, Error::Deadlock(_)), "{error:?}");
        drop(second);
        assert!(waiting.join().unwrap().is_ok());
    });
}

#[test]
fn a_task_of_a_runtime_may_block_any_number_of_times() {
    let server = Server::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = connect(&server);
        for _ in 0..1_000 {
            let guard = client.lock("k").acquire().wait_guard().unwrap();
            guard.release().unwrap();
        }
    });
}
