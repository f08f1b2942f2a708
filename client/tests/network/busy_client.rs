//! The client is kept from its work, and the server is not: what has arrived by then is not late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use mortise_client::{Client, Error};
use mortise_harness::{Server, eventually_within};
use tokio::task::JoinSet;

use crate::support::{PATIENCE, ms};

/// A connection sends all their requests before it reads the first reply.
const TASKS: usize = 100;

/// Keeps the client's only thread until the server has replied to all, and the time for that is over.
fn compute(server: &Server, until: Instant) {
    let mut connection = server.connect();
    eventually_within(PATIENCE, "the server has replied to all", || {
        connection.cmd(&["DBSIZE"]) == redis::Value::Int(TASKS as i64)
    });
    thread::sleep(until.saturating_duration_since(Instant::now()));
}

#[tokio::test(flavor = "current_thread")]
async fn replies_that_arrive_while_the_client_computes_are_not_late() {
    let server = Arc::new(Server::start());
    let builder = Client::builder(server.url()).unwrap();
    let limit = ms(3_000);
    let client = builder.response_timeout(limit).connect().await.unwrap();
    let warm = client.lock("k0").try_acquire().await.unwrap().unwrap();
    warm.release().await.unwrap();
    let computed = Arc::new(AtomicBool::new(false));
    let mut asking = JoinSet::new();
    for n in 0..TASKS {
        let lock = client.lock(format!("k{n}")).lease(ms(60_000));
        let (server, computed) = (server.clone(), computed.clone());
        asking.spawn(async move {
            let guard = lock.clone().try_acquire().await?.expect("it is free");
            if !computed.swap(true, Ordering::Relaxed) {
                compute(&server, Instant::now() + limit);
            }
            Ok::<_, Error>(guard)
        });
    }
    let mut guards = Vec::new();
    while let Some(asked) = asking.join_next().await {
        guards.push(asked.unwrap().expect("its reply has arrived"));
    }
    assert_eq!(guards.len(), TASKS);
}
