//! What it costs to confirm each hold by a replica: locks a second of one client, alone and with many tasks, and the time after a
//! promotion until a lock is held again, against the grace of the same servers.

use std::time::{Duration, Instant};

use mortise_client::{Client, Error};
use mortise_harness::{Server, cmd, wait_for_sync};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::clients;
use crate::report::Report;
use crate::samples::Samples;
use crate::scale::Scale;

const LEASE: Duration = Duration::from_secs(3);
/// The longest lease, and the grace after a start, in milliseconds.
const LONGEST: &str = "3000";
/// Tasks of the client, each with a lock of its own.
const TASKS: [usize; 3] = [1, 32, 256];

pub(crate) fn run(scale: &Scale, report: &mut Report) {
    let runtime = clients::runtime();
    acquisitions(&runtime, scale, report);
    promotions(&runtime, scale, report);
}

/// A server that does not wait after a promotion if its clients confirm their holds.
fn server(confirms: bool) -> mortise_harness::Builder {
    let builder = Server::builder().module_arg("max-lease", LONGEST);
    match confirms {
        true => builder.module_arg("promotion-grace", "0"),
        false => builder,
    }
}

async fn client(server: &Server, confirms: bool) -> Result<Client, Error> {
    let builder = Client::builder(server.url())?.lease(LEASE);
    builder.replicas(u32::from(confirms)).connect().await
}

fn acquisitions(runtime: &Runtime, scale: &Scale, report: &mut Report) {
    let primary = server(true).start();
    let replica = server(true).replica_of(&primary).start();
    wait_for_sync(&primary, &replica);
    for tasks in TASKS {
        let (mut confirmed, mut plain) = (Samples::default(), Samples::default());
        for _ in 0..scale.crate_rounds {
            for (confirms, samples) in [(true, &mut confirmed), (false, &mut plain)] {
                let locks = runtime.block_on(locks(&primary, confirms, tasks, scale.crate_span));
                let per_lock = scale.crate_span.as_secs_f64() * 1e6 / locks as f64;
                samples.push(per_lock);
            }
        }
        report.shown(
            format!("an acquisition and release by {tasks} at a time: confirmed by a replica, against not confirmed"),
            "µs",
            &confirmed,
            &plain,
        );
    }
}

/// How many locks the tasks acquire and release.
async fn locks(primary: &Server, confirms: bool, tasks: usize, span: Duration) -> usize {
    let client = client(primary, confirms).await.expect("it connects");
    let end = Instant::now() + span;
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let client = client.clone();
        running.spawn(async move {
            let mut count = 0;
            while Instant::now() < end {
                let guard = client.lock(format!("key:{task}")).acquire().await?;
                guard.release().await?;
                count += 1;
            }
            Ok::<usize, Error>(count)
        });
    }
    let counts = running.join_all().await.into_iter();
    let counts = counts.collect::<Result<Vec<_>, _>>();
    client.close(LEASE).await;
    counts.expect("the servers are up").iter().sum()
}

/// The primary dies. Its replica, which has one of its own, is promoted.
fn promotions(runtime: &Runtime, scale: &Scale, report: &mut Report) {
    let (mut confirmed, mut grace) = (Samples::default(), Samples::default());
    for _ in 0..scale.crate_rounds {
        for (confirms, samples) in [(true, &mut confirmed), (false, &mut grace)] {
            samples.push(runtime.block_on(until_held(confirms)));
        }
    }
    report.shown(
        "from a promotion until a client holds a lock: confirmed, against the grace of the same servers",
        "ms",
        &confirmed,
        &grace,
    );
}

async fn until_held(confirms: bool) -> f64 {
    let start = || server(confirms).module_arg("grace", LONGEST);
    let primary = start().start();
    let promoted = start().replica_of(&primary).start();
    let replica = start().replica_of(&promoted).start();
    wait_for_sync(&primary, &promoted);
    wait_for_sync(&promoted, &replica);
    // The grace after the start of the servers ends, at the primary and a little later at the replicas.
    let first = client(&primary, false).await.expect("it connects");
    let guard = first.lock("first").wait(20 * LEASE).acquire().await;
    let released = guard.expect("the grace ends").release().await;
    released.expect("the server is up");
    tokio::time::sleep(LEASE).await;
    drop(primary);
    let began = Instant::now();
    cmd!(promoted.connect(), "REPLICAOF", "NO", "ONE");
    let client = client(&promoted, confirms).await.expect("it connects");
    let lock = client.lock("other").wait(20 * LEASE);
    let guard = lock.acquire().await.expect("the grace ends");
    let took = began.elapsed();
    guard.release().await.expect("the server is up");
    took.as_secs_f64() * 1e3
}
