//! Thousands of tasks wait in a process that may open only a few files: they share two connections.

use std::process::{Command, Stdio};

use mortise_client::Client;
use mortise_harness::Server;
use tokio::task::JoinSet;

use crate::support::ms;
use crate::support::process::{other_half, url};

const TASKS: u64 = 10_000;

#[test]
fn ten_thousand_tasks_wait_for_one_lock_in_a_process_with_256_files() {
    let server = Server::start();
    let crowd = other_half("crowd::crowd_process", &server);
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -n 256; exec \"$0\" \"$@\""])
        .arg(crowd.get_program())
        .args(crowd.get_args())
        .envs(
            crowd
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
    let ended = limited.stdin(Stdio::null()).status().unwrap();
    assert!(ended.success());
    // Those of the process, and one of this test.
    let connected = server.info("stats")["total_connections_received"].parse::<u64>();
    assert!(connected.unwrap() < 12, "two connections are enough");
}

#[test]
#[ignore = "the other half of a test"]
fn crowd_process() {
    let url = url().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = Client::connect(url).await.unwrap();
        let lock = client.lock("k").lease(ms(60_000));
        let first = lock.clone().acquire().await.unwrap();
        let mut waiting = JoinSet::new();
        for _ in 0..TASKS {
            let lock = lock.clone();
            waiting.spawn(async move { lock.acquire().await?.release().await });
        }
        loop {
            // A busy machine may take long for so many.
            if let Ok(Some(info)) = client.info("k").await
                && info.waiters == TASKS
            {
                break;
            }
            tokio::time::sleep(ms(10)).await;
        }
        first.release().await.unwrap();
        let served = waiting.join_all().await;
        assert!(served.iter().all(Result::is_ok));
        client.close(ms(20_000)).await;
    });
}
