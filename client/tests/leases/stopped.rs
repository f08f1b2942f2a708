//! A process that was stopped for longer than its lease.

use std::process::Command;
use std::time::Duration;

use mortise_client::BootInstant;
use mortise_harness::{Server, cmd, eventually, int, stop_process};
use tokio::runtime::Runtime;

use crate::holder::Holder;
use crate::support::client_of;
use crate::support::process::url;

/// Long enough for renewals on a busy machine.
const LEASE: Duration = Duration::from_secs(6);

#[test]
fn a_process_that_was_stopped_for_longer_than_its_lease_finds_its_guard_lost_when_it_continues() {
    let server = Server::start();
    let mut holder = Holder::start("stopped::holder_process", &server);
    stop_process(&holder.process);
    let stopped = BootInstant::now();
    eventually("its lease is over", || {
        let holds = int(&cmd!(server.connect(), "EXISTS", "k"));
        holds == 0 && stopped.elapsed() > LEASE
    });
    let sent = Command::new("kill")
        .args(["-CONT", &holder.process.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    assert_eq!(holder.answer("after"), "after the gap: false");
}

/// The test above runs this in another process. It checks its guard in a loop, while another thread renews it, and prints
/// the first result after a gap longer than the lease.
#[test]
#[ignore = "the other half of a test"]
fn holder_process() {
    let Some(url) = url() else {
        return;
    };
    let runtime = Runtime::new().unwrap();
    let guard = runtime.block_on(async {
        let client = client_of(&url).await;
        client.lock("k").lease(LEASE).acquire().await.unwrap()
    });
    // Before the line: the test may stop this process at once.
    let mut last = BootInstant::now();
    println!("holding");
    loop {
        let before = BootInstant::now();
        let valid = guard.is_valid();
        let gap = BootInstant::now().since(last);
        if !valid {
            // Nothing but the stop lasts that long.
            assert!(
                gap > LEASE / 2,
                "lost without having been stopped, after {gap:?}"
            );
            println!("after the gap: false");
            return;
        }
        if before.since(last) > LEASE {
            println!("after the gap: true");
            return;
        }
        last = before;
    }
}
