//! `check` and `is_valid`, also from a waker, and commands that the server runs only while the lock is held.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use mortise_client::{Error, Held, Loss, Reply};
use mortise_harness::{Server, cmd};

use crate::support::{client, ms};

#[tokio::test]
async fn check_returns_the_token_of_a_held_lock_and_the_reason_of_a_lost_one() {
    let server = Server::start();
    let client = client(&server).await;
    let guard = client.lock("k").acquire().await.unwrap();
    assert_eq!(guard.check().unwrap(), guard.token());
    let held = guard.held();
    guard.release().await.unwrap();
    assert!(matches!(held.check(), Err(Error::Lost(Loss::Released))));
}

/// A waker that checks whether the lock is held.
struct Asks(Held, std::sync::mpsc::Sender<bool>);

impl Wake for Asks {
    fn wake(self: Arc<Self>) {
        let _ = self.1.send(self.0.is_valid());
    }
}

#[tokio::test]
async fn a_waker_may_check_whether_the_lock_is_held() {
    let server = Server::start();
    let client = client(&server).await;
    let guard = client.lock("k").acquire().await.unwrap();
    let (sender, asked) = std::sync::mpsc::channel();
    let waker = Waker::from(Arc::new(Asks(guard.held(), sender)));
    let mut lost = pin!(guard.held().lost());
    let mut context = Context::from_waker(&waker);
    assert!(lost.as_mut().poll(&mut context).is_pending());
    // On another thread, which a deadlock would block.
    std::thread::spawn(move || drop(guard));
    assert_eq!(asked.recv_timeout(ms(10_000)), Ok(false));
}

#[tokio::test]
async fn a_guarded_command_runs_while_the_lock_is_held_and_not_after() {
    let server = Server::start();
    let client = client(&server).await;
    let guard = client.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let guarded = client.guarded(&guard);
    let reply = guarded.run(["SET", "data", "1"]).await.unwrap();
    assert_eq!(reply, Reply::Text(b"OK".to_vec()));
    assert_eq!(guarded.run(["INCR", "data"]).await.unwrap(), Reply::Int(2));
    let wrong = guarded.run(["LPUSH", "data", "x"]).await.unwrap_err();
    assert!(
        matches!(&wrong, Error::Refused { code, .. } if code == "WRONGTYPE"),
        "{wrong:?}"
    );
    cmd!(server.connect(), "DEL", "k");
    let error = client
        .guarded(&guard)
        .run(["SET", "data", "9"])
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NotHeld), "{error:?}");
    assert_eq!(guard.loss(), Some(Loss::Denied));
    let error = client
        .guarded(&guard)
        .run(["SET", "data", "9"])
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Lost(Loss::Denied)), "{error:?}");
    let data = client.lock("other").acquire().await.unwrap();
    let read = client.guarded(&data).run(["GET", "data"]).await.unwrap();
    assert_eq!(read, Reply::Text(b"2".to_vec()));
}
