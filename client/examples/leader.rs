//! Leader election: one of several leads for as long as it holds the lock, and the next in the queue takes over.
//!
//! `cargo run -p mortise-client --example leader -- redis://127.0.0.1/`

use std::time::Duration;

use mortise_client::{Client, Error};

async fn candidate(client: Client, name: &'static str, term: Duration) -> Result<(), Error> {
    let lock = client.lock("leader").lease(Duration::from_secs(2));
    let guard = lock.acquire().await?;
    println!("{name} leads, in term {}", guard.token());
    tokio::select! {
        () = lead(term) => {
            println!("{name} resigns");
            guard.release().await
        }
        loss = guard.lost() => {
            println!("{name} has lost the lead, and may run again: {loss}");
            Ok(())
        }
    }
}

/// What a leader does. Whatever it writes should carry the token, so that a leader of an earlier term cannot overwrite it.
async fn lead(term: Duration) {
    tokio::time::sleep(term).await;
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    let term = Duration::from_millis(300);
    tokio::try_join!(
        candidate(client.clone(), "anna", term),
        candidate(client.clone(), "bert", term),
        candidate(client.clone(), "carl", term),
    )?;
    client.close(Duration::from_secs(5)).await;
    Ok(())
}
