//! A function that runs under a lock, with lease and wait limit said once: what an annotation does elsewhere.
//!
//! `cargo run -p mortise-client --example with_lock -- redis://127.0.0.1/`

use std::time::Duration;

use mortise_client::{Client, Error};

async fn transfer(client: &Client, account: u64, amount: i64) -> Result<i64, Error> {
    let lock = client.lock(format!("account:{account}"));
    lock.run(|guard| async move {
        println!("account {account}: {amount} with token {}", guard.check()?);
        Ok(amount)
    })
    .await
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "redis://127.0.0.1/".into());
    let client = Client::builder(url)?
        .lease(Duration::from_secs(10))
        .wait(Duration::from_secs(2))
        .connect()
        .await?;
    let (a, b) = tokio::join!(transfer(&client, 7, 100), transfer(&client, 7, -40));
    println!("{} in sum", a? + b?);
    client.close(Duration::from_secs(5)).await;
    Ok(())
}
