//! A function that runs under a lock, with key, lease and wait limit said once: what an annotation does elsewhere.
//!
//! `cargo run -p mortise-client --example with_lock -- redis://127.0.0.1/`

use std::time::Duration;

use mortise_client::{Client, Error, Held, Locks};

/// Runs `work` under the lock `key`: waits up to `wait` for it, and loses it `lease` after this process dies.
async fn with_lock<T, F: Future<Output = Result<T, Error>>>(
    locks: &dyn Locks,
    key: &str,
    lease: Duration,
    wait: Duration,
    work: impl FnOnce(Held) -> F,
) -> Result<T, Error> {
    locks
        .lock_of(key.as_bytes())
        .lease(lease)
        .wait(wait)
        .run(work)
        .await
}

async fn transfer(locks: &dyn Locks, account: u64, amount: i64) -> Result<i64, Error> {
    let key = format!("account:{account}");
    with_lock(
        locks,
        &key,
        Duration::from_secs(10),
        Duration::from_secs(2),
        |held| async move {
            println!("account {account}: {amount} with token {}", held.check()?);
            Ok(amount)
        },
    )
    .await
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    let (a, b) = tokio::join!(transfer(&client, 7, 100), transfer(&client, 7, -40));
    println!("{} in sum", a? + b?);
    client.close().await;
    Ok(())
}
