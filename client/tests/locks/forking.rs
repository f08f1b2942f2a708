//! A process that forks after it has connected: the child has connections, names and threads of its own.

use std::process::{Command, Stdio};

use mortise_client::blocking::Client;
use mortise_client::{Error, Loss, Released};
use mortise_harness::Server;

use crate::support::fork::succeeds_in_a_fork;
use crate::support::ms;

/// The environment variable that makes [`forking_process`] fork.
const FORKS: &str = "MORTISE_TEST_FORKS";

#[test]
fn after_a_fork_the_child_takes_locks_of_its_own_and_leaves_its_parent_s_alone() {
    let server = Server::start();
    let ended = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "forking::forking_process",
            "--nocapture",
            "--ignored",
        ])
        .env(FORKS, server.url())
        .stdin(Stdio::null())
        .status();
    assert!(ended.unwrap().success());
}

#[test]
#[ignore = "the other half of a test"]
fn forking_process() {
    let client = Client::connect(std::env::var(FORKS).unwrap()).unwrap();
    let lock = client.lock("a").lease(ms(60_000)).wait(ms(20_000));
    let guard = lock.acquire().unwrap();
    // Its thread that watches deadlines is there, too.
    let watched = client
        .lock("watched")
        .max_hold(ms(1_000))
        .acquire()
        .unwrap();
    assert_eq!(watched.lost(), Loss::HoldLimit);

    let copied = client.lock("copied").lease(ms(60_000)).acquire().unwrap();

    let (other, parents) = (client.lock("b"), guard.owner().to_vec());
    let (client, held) = (client.clone(), &guard);
    assert!(succeeds_in_a_fork(move || {
        assert!(lock.try_acquire().unwrap().is_none(), "the parent has it");
        let mine = other.acquire().unwrap();
        let client_of = |owner: &[u8]| owner[..36].to_vec();
        assert_ne!(client_of(mine.owner()), client_of(&parents));
        mine.renew().unwrap();
        assert_eq!(mine.release().unwrap(), Released::Held);

        let brief = other.clone().max_hold(ms(1_000)).acquire().unwrap();
        assert_eq!(brief.lost(), Loss::HoldLimit);

        assert!(matches!(held.renew(), Err(Error::Closed)));
        drop(copied);
        let still_there = client.lock("copied").try_acquire();
        assert!(still_there.unwrap().is_none(), "it is the parent's");
        client.close();
    }));
    guard.renew().unwrap();
    assert_eq!(guard.release().unwrap(), Released::Held);
}
