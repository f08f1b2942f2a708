//! The guard against the bare commands, each over one connection: one task that acquires and releases a lock, and
//! many that share a connection, each with its own lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mortise_client::redis::aio::MultiplexedConnection;
use mortise_client::redis::{self, Value};
use mortise_client::{Client, Lock};
use mortise_harness::Server;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::clients::load::LEASE;
use crate::clients::rivals::Failure;
use crate::clients::{millis, server};
use crate::report::Report;
use crate::samples::Samples;
use crate::scale::Scale;

/// A way to acquire and release a lock.
#[derive(Clone)]
enum Way {
    Guard(Lock),
    Bare(MultiplexedConnection, String),
}

impl Way {
    async fn pair(&mut self) -> Result<(), Failure> {
        match self {
            Way::Guard(lock) => {
                lock.clone().acquire().await?.release().await?;
            }
            Way::Bare(connection, key) => {
                let token: Value = redis::cmd("LOCK.ACQUIRE")
                    .arg(&*key)
                    .arg("owner")
                    .arg(LEASE.as_millis() as u64)
                    .query_async(connection)
                    .await?;
                assert!(matches!(token, Value::Int(_)), "nobody else wants it");
                let left: i64 = redis::cmd("LOCK.RELEASE")
                    .arg(&*key)
                    .arg("owner")
                    .query_async(connection)
                    .await?;
                assert_eq!(left, 0, "held once");
            }
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Rounds {
    p50: Samples,
    p99: Samples,
    per_second: Samples,
}

pub(crate) fn run(runtime: &Runtime, scale: &Scale, report: &mut Report) {
    let server = server();
    for (tasks, load) in [
        (1, "one task"),
        (8, "8 tasks on a connection"),
        (32, "32 tasks on a connection"),
        (128, "128 tasks on a connection"),
    ] {
        let (mut guard, mut bare) = (Rounds::default(), Rounds::default());
        // The first round warms up.
        for round in 0..=scale.crate_rounds {
            for (is_guard, rounds) in [(true, &mut guard), (false, &mut bare)] {
                let measured = runtime
                    .block_on(measure(is_guard, &server, tasks, scale.crate_span))
                    .expect("a server that answers");
                if round > 0 {
                    let (pairs, elapsed) = measured;
                    let per_second = pairs.len() as f64 / elapsed.as_secs_f64();
                    rounds.per_second.push(per_second);
                    let pairs: Samples = pairs.into_iter().collect();
                    rounds.p50.push(1e3 * pairs.median());
                    rounds.p99.push(1e3 * pairs.quantile(0.99));
                }
            }
        }
        let what = |figure: &str| format!("guard against bare commands, {load}: {figure}");
        let p50 = what("p50 of acquire + release");
        let p99 = what("p99 of acquire + release");
        let locks = what("locks per second");
        report.shown(p99, "µs", &guard.p99, &bare.p99);
        report.shown(locks, "/s", &guard.per_second, &bare.per_second);
        report.shown(p50, "µs", &guard.p50, &bare.p50);
        if tasks == 32 {
            // At least three quarters of their rate.
            let locks = format!("bare commands against guard, {load}: locks per second");
            let (ours, theirs) = (&bare.per_second, &guard.per_second);
            report.held(locks, "/s", ours, theirs, 1.0 / 0.75);
        }
    }
}

/// The milliseconds of each pair, and of all.
async fn measure(
    is_guard: bool,
    server: &Server,
    tasks: usize,
    span: Duration,
) -> Result<(Vec<f64>, Duration), Failure> {
    let connection = redis::Client::open(server.url())?
        .get_multiplexed_async_connection()
        .await?;
    let client = Client::builder(server.url())?.build()?;
    let over = Arc::new(AtomicBool::new(false));
    let mut running = JoinSet::new();
    let began = Instant::now();
    for number in 0..tasks {
        let key = format!("bare-{number}");
        let mut way = match is_guard {
            true => Way::Guard(client.lock(&key).lease(LEASE)),
            false => Way::Bare(connection.clone(), key),
        };
        let over = over.clone();
        running.spawn(async move {
            let mut pairs = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let asked = Instant::now();
                way.pair().await?;
                pairs.push(millis(asked.elapsed()));
            }
            Ok::<_, Failure>(pairs)
        });
    }
    tokio::time::sleep(span).await;
    over.store(true, Ordering::Relaxed);
    let mut all = Vec::new();
    while let Some(pairs) = running.join_next().await {
        all.append(&mut pairs??);
    }
    Ok((all, began.elapsed()))
}
