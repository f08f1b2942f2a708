//! A flash sale: many buyers, little stock, and a count in Redis that must never go below zero. The write carries the fencing
//! token, so that even a buyer who slept past its lease sells nothing twice. Beside it, the same sale under a lock that is
//! polled for every 10 ms, as is done with `SET NX PX`: without a fence, and whoever polls at the right moment gets in.
//!
//! `cargo run --release -p mortise-client --example flash_sale -- redis://127.0.0.1/`

use std::time::{Duration, Instant};

use mortise_client::Client;
use mortise_client::redis::aio::MultiplexedConnection;
use mortise_client::redis::{self, AsyncCommands, AsyncConnectionConfig};
use tokio::task::JoinSet;

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
    // All buyers share it, so a reply may take longer than the crate's limit of half a second.
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(10)));
    let mut connection = redis
        .get_multiplexed_async_connection_with_config(&patient)
        .await?;

    connection.set::<_, _, ()>("sale:stock", STOCK).await?;
    let started = Instant::now();
    let mut buyers = JoinSet::new();
    for _ in 0..BUYERS {
        let (client, connection) = (client.clone(), connection.clone());
        buyers.spawn(async move { buy_with_lock(&client, connection).await });
    }
    let queueing = report("queueing in the server", buyers, started, &mut connection).await?;

    connection.set::<_, _, ()>("sale:stock", STOCK).await?;
    let started = Instant::now();
    let mut buyers = JoinSet::new();
    for buyer in 0..BUYERS {
        buyers.spawn(buy_by_polling(buyer, connection.clone()));
    }
    let polling = report("polling with SET NX PX", buyers, started, &mut connection).await?;
    println!("queueing sold {:.1} times as fast", queueing / polling);
    client.close(Duration::from_secs(5)).await;
    Ok(())
}

/// What one buyer got, and the longest it waited for the lock.
type Bought = (i64, Duration);

/// Buys until nothing is left.
async fn buy_with_lock(
    client: &Client,
    mut connection: MultiplexedConnection,
) -> Result<Bought, Failure> {
    let lock = client.lock("sale:lock").lease(Duration::from_secs(5));
    // Whoever slept past its lease has a smaller token than the one who sold meanwhile, and sells nothing.
    let write = redis::Script::new(
        "if tonumber(ARGV[2]) < tonumber(redis.call('GET', KEYS[2]) or '0') then return 0 end
         redis.call('MSET', KEYS[1], ARGV[1], KEYS[2], ARGV[2])
         return 1",
    );
    let (mut bought, mut longest) = (0, Duration::ZERO);
    loop {
        let asked = Instant::now();
        let guard = lock.clone().acquire().await?;
        longest = longest.max(asked.elapsed());
        let stock: i64 = connection.get("sale:stock").await?;
        if stock > 0 {
            let mut write = write.key("sale:stock");
            let write = write.key("sale:fence").arg(stock - 1);
            let written = write.arg(guard.token().get());
            bought += written.invoke_async::<i64>(&mut connection).await?;
        }
        guard.release().await?;
        if stock == 0 {
            return Ok((bought, longest));
        }
    }
}

async fn buy_by_polling(
    buyer: usize,
    mut connection: MultiplexedConnection,
) -> Result<Bought, Failure> {
    let release = redis::Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
    );
    let (mut bought, mut longest) = (0, Duration::ZERO);
    loop {
        let options = redis::SetOptions::default()
            .conditional_set(redis::ExistenceCheck::NX)
            .with_expiration(redis::SetExpiry::PX(5000));
        let asked = Instant::now();
        while !connection
            .set_options::<_, _, bool>("sale:polled", buyer, options.clone())
            .await?
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        longest = longest.max(asked.elapsed());
        // Reads, and writes: what loses updates without a lock, and here also with one whose lease has run out.
        let stock: i64 = connection.get("sale:stock").await?;
        if stock > 0 {
            connection.set::<_, _, ()>("sale:stock", stock - 1).await?;
            bought += 1;
        }
        release
            .key("sale:polled")
            .arg(buyer)
            .invoke_async::<i64>(&mut connection)
            .await?;
        if stock == 0 {
            return Ok((bought, longest));
        }
    }
}

/// Checks that what was sold is what there was; returns how many a second.
async fn report(
    how: &str,
    mut buyers: JoinSet<Result<Bought, Failure>>,
    started: Instant,
    connection: &mut MultiplexedConnection,
) -> Result<f64, Failure> {
    let (mut sold, mut longest) = (0, Duration::ZERO);
    while let Some(bought) = buyers.join_next().await {
        let (bought, waited) = bought??;
        (sold, longest) = (sold + bought, longest.max(waited));
    }
    let time = started.elapsed();
    let left: i64 = connection.get("sale:stock").await?;
    assert_eq!((sold, left), (STOCK, 0), "oversold");
    let rate = sold as f64 / time.as_secs_f64();
    println!(
        "{how}: {sold} sold in {time:.2?}, {rate:.0} a second; the longest wait {longest:.2?}"
    );
    Ok(rate)
}
