//! A process forks. No name that the child makes is one of its parent's.

use std::collections::HashSet;
use std::process::Stdio;

use mortise_client::{Client, Owner};
use mortise_harness::Server;
use tokio::runtime::Builder;

use crate::support::fork::succeeds_in_a_fork;
use crate::support::ms;
use crate::support::process::{other_half, url};

#[test]
fn no_name_of_a_forked_process_is_one_of_its_parents() {
    let server = Server::start();
    let mut child = other_half("forking::forking_process", &server);
    let ended = child.stdin(Stdio::null()).status();
    assert!(ended.unwrap().success());
    // The parent's holds, and those of the child: all of them different, although the names were made by one copied value.
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let names: Vec<_> = runtime.block_on(async {
        let client = Client::connect(server.url()).await.unwrap();
        let mut names = Vec::new();
        for key in ["parent:0", "parent:1", "child:0", "child:1"] {
            let info = client.info(key).await.unwrap();
            names.push(info.expect("its lease is a minute").holds[0].owner.clone());
        }
        names
    });
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), 4, "{names:?}");
}

#[test]
#[ignore = "the other half of a test"]
fn forking_process() {
    let url = url().unwrap();
    let owners = [Owner::new(), Owner::named("nightly").unwrap()];
    let take = |who: &str| {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = Client::connect(&url).await.unwrap();
            for (number, owner) in owners.iter().enumerate() {
                let lock = client.lock(format!("{who}:{number}")).lease(ms(60_000));
                std::mem::forget(lock.owner(owner).acquire().await.unwrap());
            }
        });
    };
    // Nothing runs in this process: the child copies only the owners.
    assert!(succeeds_in_a_fork(|| take("child")));
    take("parent");
}
