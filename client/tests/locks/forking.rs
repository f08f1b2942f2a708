//! A process forks after it has connected. In the child, the copied clients return `Forked` and leave the parent's holds alone. A
//! client that the child builds has its own connections, names and threads.

use std::mem;
use std::process::{Command, Stdio};

use mortise_client::blocking::Wait;
use mortise_client::{Client, Error, Loss, Owner};
use mortise_harness::{Conn, Server, cmd};

use crate::support::fork::succeeds_in_a_fork;
use crate::support::ms;

/// The environment variable with the server's URL, for the halves of these tests that fork.
const FORKS: &str = "MORTISE_TEST_FORKS";

/// Runs the forking half of a test in another process. `true` if it succeeds.
fn succeeds_by_itself(name: &str, server: &Server) -> bool {
    let ended = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--ignored"])
        .env(FORKS, server.url())
        .stdin(Stdio::null())
        .status();
    ended.unwrap().success()
}

#[test]
fn after_a_fork_the_child_acquires_its_own_locks_and_leaves_the_parents_alone() {
    let server = Server::start();
    assert!(succeeds_by_itself("forking::forking_process", &server));
}

#[test]
fn an_owner_that_a_fork_copied_is_a_different_owner_in_each_process() {
    let server = Server::start();
    let mut other = server.connect();
    cmd!(other, "LOCK.ACQUIRE", "other's", "other", 60_000);
    assert!(succeeds_by_itself("forking::process_with_owners", &server));
}

#[test]
fn an_async_client_that_a_fork_copied_returns_forked() {
    let server = Server::start();
    assert!(succeeds_by_itself("forking::async_process", &server));
}

#[test]
#[ignore = "the other half of a test"]
fn forking_process() {
    let url = std::env::var(FORKS).unwrap();
    let client = Client::connect(url.as_str()).wait().unwrap();
    let lock = client.lock("a").lease(ms(60_000)).wait(ms(20_000));
    let mut guard = lock.acquire().wait_guard().unwrap();
    // This starts the thread that watches deadlines.
    let watched = client.lock("watched").max_hold(ms(1_000));
    let watched = watched.acquire().wait_guard().unwrap();
    assert_eq!(watched.lost().wait(), Loss::HoldLimit);

    let copied = client.lock("copied").lease(ms(60_000));
    let copied = copied.acquire().wait_guard().unwrap();

    let (parents, held) = (guard.owner().to_vec(), &mut guard);
    let client = client.clone();
    assert!(succeeds_in_a_fork(move || {
        for error in [
            lock.acquire().wait().map(drop).unwrap_err(),
            lock.try_read().wait().map(drop).unwrap_err(),
            held.renew().wait().unwrap_err(),
            client.info("a").wait().map(drop).unwrap_err(),
            client.top(1).wait().map(drop).unwrap_err(),
            client.revoke("a", "somebody").wait().map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Forked), "{error:?}");
            assert!(error.to_string().contains("after the fork"), "{error}");
        }
        client.close().wait();

        let own = Client::connect(url.as_str()).wait().unwrap();
        let taken = own.lock("a").try_acquire().wait().unwrap();
        assert!(taken.is_none(), "the parent has it");
        let mine = own.lock("b").acquire().wait_guard().unwrap();
        let client_of = |owner: &[u8]| owner[..36].to_vec();
        assert_ne!(client_of(mine.owner()), client_of(&parents));
        mine.renew().wait().unwrap();
        mine.release().unwrap();

        let brief = own.lock("b").max_hold(ms(1_000));
        let brief = brief.acquire().wait_guard().unwrap();
        assert_eq!(brief.lost().wait(), Loss::HoldLimit);

        drop(copied);
        let still_there = own.lock("copied").try_acquire().wait();
        assert!(still_there.unwrap().is_none(), "it is the parent's");
        own.close().wait();
    }));
    guard.renew().wait().unwrap();
    guard.release().unwrap();
}

#[test]
#[ignore = "the other half of a test"]
fn process_with_owners() {
    let url = std::env::var(FORKS).unwrap();
    let connect = || Client::connect(url.as_str()).wait().unwrap();
    let client = connect();
    let named = || Owner::named("billing").unwrap();
    for (owner, is_unique, key) in [(Owner::new(), true, "a"), (named(), false, "b")] {
        // Called with a client that the child has built.
        let take = |client: &Client| {
            let lock = client.lock(key).owner(&owner).lease(ms(60_000));
            lock.try_acquire().wait()
        };
        // The grandchild, then the child, then this process: each makes its first name.
        let takes_it = || {
            assert!(succeeds_in_a_fork(|| {
                let own = connect();
                mem::forget(take(&own).unwrap().expect("nobody has it"));
                assert!(take(&own).is_err(), "this task has it itself");
            }));
            let taken = take(&connect()).unwrap();
            assert!(taken.is_none(), "its child has it, not it: {taken:?}");
        };
        assert!(succeeds_in_a_fork(takes_it));
        let taken = take(&client).unwrap();
        assert!(taken.is_none(), "a child has it: {taken:?}");

        // The child cannot re-enter the parent's hold.
        let mine = client.lock("entered").owner(&owner).reentrant();
        let guard = mine.acquire().wait_guard().unwrap();
        assert!(succeeds_in_a_fork(|| {
            let own = connect();
            let mine = own.lock("entered").owner(&owner).reentrant();
            let taken = mine.try_acquire().wait().unwrap();
            assert!(taken.is_none(), "the parent has it");
            let name = owner.name().to_vec();
            let lock = own.lock("own").owner(&owner);
            let own = lock.acquire().wait_guard().unwrap();
            assert!(own.owner().starts_with(&name));
            own.release().unwrap();
            assert_eq!(guard.owner().starts_with(&name), !is_unique);
        }));
        assert!(guard.owner().starts_with(owner.name()));

        // The child is another task: its wait and the parent's hold make no deadlock.
        if is_unique {
            let port = url.rsplit([':', '/']).nth(1).unwrap().parse().unwrap();
            let mut other = Conn::to_port(port).unwrap();
            let waits = ["WAIT", "0", "MAIL", "box", "HOLDS", "1"];
            let asks = ["LOCK.ACQUIRE", "entered", "other", "60000"];
            other.cmd(&[&asks[..], &waits].concat());
            assert!(succeeds_in_a_fork(|| {
                let lock = connect().lock("other's").owner(&owner).wait(ms(50));
                let busy = lock.acquire().wait();
                assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
            }));
            other.cmd(&["LOCK.LEAVE", "entered", "other"]);
        }
        guard.release().unwrap();
    }
}

#[test]
#[ignore = "the other half of a test"]
fn async_process() {
    let url = std::env::var(FORKS).unwrap();
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let parents = runtime();
    let client = parents
        .block_on(mortise_client::Client::connect(url))
        .unwrap();
    let lock = client.lock("a").lease(ms(60_000));
    let guard = parents.block_on(lock.acquire()).unwrap();
    let dropped = client.lock("b").lease(ms(60_000));
    let mut dropped = Some(parents.block_on(dropped.acquire()).unwrap());
    assert!(succeeds_in_a_fork(|| {
        let runtime = runtime();
        drop(dropped.take());
        let taken = runtime.block_on(lock.acquire());
        assert!(matches!(taken, Err(Error::Forked)), "{taken:?}");
        let renewed = runtime.block_on(guard.renew());
        assert!(matches!(renewed, Err(Error::Forked)), "{renewed:?}");
        runtime.block_on(client.close());
        mem::forget(runtime);
    }));
    let taken = parents.block_on(client.lock("b").try_acquire());
    assert!(
        taken.unwrap().is_none(),
        "only the child's copy was dropped"
    );
    parents.block_on(guard.renew()).unwrap();
    parents.block_on(guard.release()).unwrap();
}
