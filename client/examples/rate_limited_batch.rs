//! A batch that runs one at a time, at a limited rate, and stops when it is cancelled: the lock goes with it.
//!
//! `cargo run -p mortise-client --example rate_limited_batch -- redis://127.0.0.1/`

use std::time::Duration;

use mortise_client::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    let lock = client.lock("batch").lease(Duration::from_secs(5));
    let batch = lock.run(|guard| async move {
        let mut pace = tokio::time::interval(Duration::from_millis(20));
        for item in 1.. {
            pace.tick().await;
            println!("item {item}, token {}", guard.check()?);
        }
        Ok::<_, Error>(())
    });
    // Whatever the reason to stop: dropping the future cancels the work and releases the lock.
    if tokio::time::timeout(Duration::from_millis(200), batch)
        .await
        .is_err()
    {
        println!("cancelled");
    }
    let next = client
        .lock("batch")
        .wait(Duration::from_secs(1))
        .acquire()
        .await?;
    println!("the next batch may start, token {}", next.token());
    next.release().await?;
    client.close(Duration::from_secs(5)).await;
    Ok(())
}
