//! A lock over three independent servers, and a write that only the newest holder can do: the store keeps the largest
//! token it has seen and refuses smaller ones.
//!
//! `cargo run -p mortise-client --example redlock -- redis://127.0.0.1:6379/ redis://127.0.0.1:6380/ redis://127.0.0.1:6381/`

use std::sync::Mutex;
use std::time::Duration;

use mortise_client::{Error, Quorum, Token};

/// Whatever the lock protects. In a database: `UPDATE … SET value = ?, fence = ? WHERE fence <= ?`.
#[derive(Default)]
struct Store(Mutex<(Option<Token>, String)>);

impl Store {
    fn write(&self, token: Token, value: &str) -> bool {
        let Ok(mut stored) = self.0.lock() else {
            return false;
        };
        if stored.0.is_some_and(|seen| token < seen) {
            return false;
        }
        *stored = (Some(token), value.to_owned());
        true
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let servers: Vec<String> = std::env::args().skip(1).collect();
    if servers.is_empty() {
        println!("name the servers, an odd number of them: redis://HOST:PORT/ …");
        return Ok(());
    }
    // A quarter of the lease at most. The shorter, the sooner an acquisition goes on without a server that is silent.
    let quorum = Quorum::builder(&servers)?.response_timeout(Duration::from_millis(500));
    let quorum = quorum.connect().await?;
    let store = Store::default();
    let lock = quorum.lock("ledger").lease(Duration::from_secs(2));

    let slow = lock.clone().auto_renew(false).acquire().await?;
    println!(
        "the slow one holds with token {}, and sleeps past its lease",
        slow.token()
    );
    let loss = slow.lost().await;
    println!("the slow one: {loss}");

    let fast = lock.acquire().await?;
    println!(
        "the fast one writes with token {}: {}",
        fast.token(),
        store.write(fast.token(), "fast")
    );
    println!(
        "the slow one writes with token {}: {}",
        slow.token(),
        store.write(slow.token(), "slow")
    );
    fast.release().await?;
    quorum.close(Duration::from_secs(5)).await;
    Ok(())
}
