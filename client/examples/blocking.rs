//! The same without a runtime: threads that count in turn.
//!
//! `cargo run -p mortise-client --features blocking --example blocking -- redis://127.0.0.1/`

use std::thread;
use std::time::Duration;

use mortise_client::blocking::Wait;
use mortise_client::{Client, Error};

fn main() -> Result<(), Error> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "redis://127.0.0.1/".into());
    let client = Client::connect(url).wait()?;
    thread::scope(|scope| {
        let threads = (1..=3).map(|n| {
            let lock = client
                .lock("counter")
                .lease(Duration::from_secs(5))
                .wait(Duration::from_secs(2));
            scope.spawn(move || {
                let guard = lock.acquire().wait_guard()?;
                println!("thread {n} holds the lock with token {}", guard.token());
                guard.release()
            })
        });
        for thread in threads.collect::<Vec<_>>() {
            if let Ok(released) = thread.join() {
                released?;
            }
        }
        Ok(())
    })
}
