//! A job that every instance starts and one runs: who does not get the lock at once leaves.
//!
//! `cargo run -p mortise-client --example run_once -- redis://127.0.0.1/`

use std::time::Duration;

use mortise_client::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    let instances = (1..=5).map(|instance| {
        let lock = client
            .lock("job:nightly")
            .lease(Duration::from_secs(30))
            .max_hold(Duration::from_secs(3600));
        async move {
            let Some(guard) = lock.try_acquire().await? else {
                println!("instance {instance}: another one runs it");
                return Ok::<_, Error>(());
            };
            println!("instance {instance}: running");
            tokio::time::sleep(Duration::from_millis(200)).await;
            guard.release().await?;
            println!("instance {instance}: done");
            Ok(())
        }
    });
    futures_util::future::try_join_all(instances).await?;
    client.close(Duration::from_secs(5)).await;
    Ok(())
}
