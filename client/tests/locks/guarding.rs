//! `check` and `is_valid`, also from a waker, and commands that the server runs only while the lock is held.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use mortise_client::redis::{Value, cmd as command};
use mortise_client::{Guard, Loss};
use mortise_harness::cmd;

use crate::support::{assert_code, assert_lost, ms, start};

#[tokio::test]
async fn check_returns_the_token_of_a_held_lock_and_the_reason_of_a_lost_one() {
    let (_server, client) = start().await;
    let guard = client.lock("k").acquire().await.unwrap();
    assert_eq!(guard.check().unwrap(), guard.token());
    client.close(ms(10_000)).await;
    assert_lost(guard.check(), Loss::Released);
}

/// A waker that checks whether the lock is held.
struct Asks(Guard, std::sync::mpsc::Sender<bool>);

impl Wake for Asks {
    fn wake(self: Arc<Self>) {
        let _ = self.1.send(self.0.is_valid());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_waker_may_check_whether_the_lock_is_held() {
    let (_server, client) = start().await;
    let lock = client.lock("k").auto_renew(false).lease(ms(500));
    let guard = lock.acquire().await.unwrap();
    let (sender, asked) = std::sync::mpsc::channel();
    let waker = Waker::from(Arc::new(Asks(guard.reenter(), sender)));
    let mut lost = pin!(guard.lost());
    let mut context = Context::from_waker(&waker);
    assert!(lost.as_mut().poll(&mut context).is_pending());
    // On another thread, which a deadlock would block.
    let asked = tokio::task::spawn_blocking(move || asked.recv_timeout(ms(10_000)));
    assert_eq!(asked.await.unwrap(), Ok(false));
}

#[tokio::test]
async fn a_guarded_command_runs_while_the_lock_is_held_and_not_after() {
    let (server, client) = start().await;
    let guard = client.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let reply = guard
        .guarded(command("SET").arg("data").arg(1))
        .await
        .unwrap();
    assert_eq!(reply, Value::Okay);
    let reply = guard.guarded(command("INCR").arg("data")).await.unwrap();
    assert_eq!(reply, Value::Int(2));
    let wrong = guard.guarded(command("LPUSH").arg("data").arg("x")).await;
    let wrong = wrong.unwrap_err();
    assert_code(&wrong, "WRONGTYPE");
    let unknown = guard.guarded(&command("FROBNICATE")).await.unwrap_err();
    assert!(unknown.to_string().contains("FROBNICATE"), "{unknown}");
    let scan = guard.guarded(command("SCAN").cursor_arg(0)).await;
    assert!(matches!(scan, Ok(Value::Array(_))), "{scan:?}");
    cmd!(server.connect(), "DEL", "k");
    assert_lost(
        guard.guarded(command("SET").arg("data").arg(9)).await,
        Loss::Denied,
    );
    assert_eq!(guard.loss(), Some(Loss::Denied));
    let data = client.lock("other").acquire().await.unwrap();
    let read = data.guarded(command("GET").arg("data")).await.unwrap();
    assert_eq!(read, Value::BulkString(b"2".to_vec()));
}

#[tokio::test]
async fn a_guarded_command_beside_an_upgrade_does_not_lose_the_lock() {
    let (server, client) = start().await;
    let guard = client.lock("k").lease(ms(60_000)).read().await.unwrap();
    let owner = String::from_utf8(guard.owner().to_vec()).unwrap();
    // As if the server had granted an upgrade whose reply is on its way.
    cmd!(server.connect(), "LOCK.WLOCK k {owner} 60000 HOLDS 1");
    assert_lost(guard.guarded(&command("PING")).await, Loss::Denied);
    assert!(guard.is_valid());
}
