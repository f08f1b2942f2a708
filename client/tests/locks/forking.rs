//! A process forks. No name that the child makes is one of its parent's.

use std::collections::HashSet;
use std::process::{Command, Stdio};

use mortise_client::{Client, Owner};
use mortise_harness::Server;
use tokio::runtime::Builder;

use crate::support::fork::succeeds_in_a_fork;
use crate::support::ms;

/// The environment variable with the server's URL, for the half of the test that forks.
const FORKS: &str = "MORTISE_TEST_FORKS";

#[test]
fn no_name_of_a_forked_process_is_one_of_its_parents() {
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
    // The parent's holds, and those of the child: all of them different, although the names were made by one copied value.
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let names: Vec<_> = runtime.block_on(async {
        let client = Client::connect(server.url()).await.unwrap();
        let mut names = Vec::new();
        for key in ["parent:0", "parent:1", "child:0", "child:1"] {
            let info = client
                .info(key)
                .await
                .unwrap()
                .expect("its lease is a minute");
            names.push(info.holds[0].owner.clone());
        }
        names
    });
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), 4, "{names:?}");
}

#[test]
#[ignore = "the other half of a test"]
fn forking_process() {
    let url = std::env::var(FORKS).unwrap();
    let owners = [Owner::new(), Owner::named("nightly").unwrap()];
    let take = |who: &str| {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = Client::connect(&url).await.unwrap();
            for (number, owner) in owners.iter().enumerate() {
                let lock = client
                    .lock(format!("{who}:{number}"))
                    .lease(ms(60_000))
                    .owner(owner);
                std::mem::forget(lock.acquire().await.unwrap());
            }
        });
    };
    // Nothing runs in this process: the child copies only the owners.
    assert!(succeeds_in_a_fork(|| take("child")));
    take("parent");
}
