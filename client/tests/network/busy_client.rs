//! The client is kept from its work, and the server is not: what has arrived by then is not late.

use std::thread;
use std::time::Instant;

use mortise_client::Client;
use mortise_harness::{Conn, Server, eventually_within, text};
use tokio::task::JoinSet;

use crate::support::{LATE, PATIENCE, ms};

const TASKS: usize = 10_000;

/// How many bytes the server has read and not carried out.
fn unread(connection: &mut Conn) -> u64 {
    let list = text(&connection.cmd(&["CLIENT", "LIST"]));
    let words = list.split_whitespace();
    let sizes = words.filter_map(|word| word.strip_prefix("qbuf="));
    sizes.map(|size| size.parse::<u64>().unwrap()).sum()
}

/// Waits until all requests have reached the server, which does not carry them out yet.
async fn await_requests(connection: &mut Conn) {
    let mut before = 0;
    loop {
        tokio::time::sleep(ms(100)).await;
        let unread = unread(connection);
        if unread == before && unread > 50 * TASKS as u64 {
            return;
        }
        before = unread;
    }
}

/// Keeps the client's only thread until the server has replied to all, and the time for that is over.
fn compute(connection: &mut Conn, until: Instant) {
    eventually_within(PATIENCE, "the server has replied to all", || {
        connection.cmd(&["DBSIZE"]) == redis::Value::Int(TASKS as i64)
    });
    thread::sleep(until.saturating_duration_since(Instant::now()));
}

#[tokio::test(flavor = "current_thread")]
async fn replies_that_arrive_while_the_client_computes_are_not_late() {
    let server = Server::start();
    let builder = Client::builder(server.url()).unwrap();
    let limit = LATE;
    let client = builder.response_timeout(limit).connect().await.unwrap();
    let mut connection = server.connect();
    connection.cmd(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let mut asking = JoinSet::new();
    for n in 0..TASKS {
        let lock = client.lock(format!("k{n}")).lease(ms(60_000));
        asking.spawn(async move { lock.try_acquire().await });
    }
    await_requests(&mut connection).await;
    connection.cmd(&["CLIENT", "UNPAUSE"]);
    compute(&mut connection, Instant::now() + limit);
    let mut guards = Vec::new();
    while let Some(asked) = asking.join_next().await {
        let guard = asked.unwrap().expect("its reply has arrived");
        guards.push(guard.expect("it is free"));
    }
    assert_eq!(guards.len(), TASKS);
}
