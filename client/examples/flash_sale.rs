//! A flash sale: many buyers, little stock, and a count in Redis that must never go below zero. Beside it, the same sale
//! under a lock that is polled for, as is done with `SET NX PX`.
//!
//! `cargo run --release --example flash_sale -- redis://127.0.0.1/`

use std::time::{Duration, Instant};

use mortise_client::Client;
use mortise_client::redis::aio::MultiplexedConnection;
use mortise_client::redis::{self, AsyncCommands};

const STOCK: i64 = 500;
const BUYERS: usize = 32;
type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "redis://127.0.0.1/".into());
    let client = Client::connect(&url).await?;
    let redis = redis::Client::open(url)?;
    let mut connection = redis.get_multiplexed_async_connection().await?;

    connection.set::<_, _, ()>("sale:stock", STOCK).await?;
    let started = Instant::now();
    let mut buyers = tokio::task::JoinSet::new();
    for _ in 0..BUYERS {
        let (client, connection) = (client.clone(), connection.clone());
        buyers.spawn(async move { buy_with_lock(&client, connection).await });
    }
    let mut sold = 0;
    while let Some(bought) = buyers.join_next().await {
        sold += bought??;
    }
    report(
        "queueing in the server",
        sold,
        started.elapsed(),
        &mut connection,
    )
    .await?;

    connection.set::<_, _, ()>("sale:stock", STOCK).await?;
    let started = Instant::now();
    let mut buyers = tokio::task::JoinSet::new();
    for buyer in 0..BUYERS {
        buyers.spawn(buy_by_polling(buyer, connection.clone()));
    }
    let mut sold = 0;
    while let Some(bought) = buyers.join_next().await {
        sold += bought??;
    }
    report(
        "polling with SET NX PX",
        sold,
        started.elapsed(),
        &mut connection,
    )
    .await
}

/// Buys until nothing is left; returns how many.
async fn buy_with_lock(client: &Client, connection: MultiplexedConnection) -> Result<i64, Failure> {
    let lock = client.lock("sale:lock").lease(Duration::from_secs(5));
    let mut bought = 0;
    loop {
        let guard = lock.acquire().await?;
        let took = take_one(connection.clone()).await?;
        guard.release().await?;
        if !took {
            return Ok(bought);
        }
        bought += 1;
    }
}

async fn buy_by_polling(
    buyer: usize,
    mut connection: MultiplexedConnection,
) -> Result<i64, Failure> {
    let release = redis::Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
    );
    let mut bought = 0;
    loop {
        let options = redis::SetOptions::default()
            .conditional_set(redis::ExistenceCheck::NX)
            .with_expiration(redis::SetExpiry::PX(5000));
        while !connection
            .set_options::<_, _, bool>("sale:polled", buyer, options.clone())
            .await?
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let took = take_one(connection.clone()).await?;
        release
            .key("sale:polled")
            .arg(buyer)
            .invoke_async::<i64>(&mut connection)
            .await?;
        if !took {
            return Ok(bought);
        }
        bought += 1;
    }
}

/// Reads, thinks, writes: what loses updates without a lock.
async fn take_one(mut connection: MultiplexedConnection) -> Result<bool, Failure> {
    let stock: i64 = connection.get("sale:stock").await?;
    if stock == 0 {
        return Ok(false);
    }
    connection.set::<_, _, ()>("sale:stock", stock - 1).await?;
    Ok(true)
}

async fn report(
    how: &str,
    sold: i64,
    time: Duration,
    connection: &mut MultiplexedConnection,
) -> Result<(), Failure> {
    let left: i64 = connection.get("sale:stock").await?;
    assert_eq!((sold, left), (STOCK, 0), "oversold");
    println!(
        "{how}: {sold} sold in {time:.2?}, {:.0} a second",
        sold as f64 / time.as_secs_f64()
    );
    Ok(())
}
