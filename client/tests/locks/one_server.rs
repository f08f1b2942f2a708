//! Acquiring and releasing locks on one server.

use std::time::Instant;

use mortise_client::{BootInstant, Client, Error, Loss, Mode, Owner};
use mortise_harness::{Server, cmd};

use crate::support::proxy::{Proxy, Traffic};
use crate::support::{
    self, assert_code, assert_lost, await_free, await_waiters, client, client_within, ms, start,
};

#[tokio::test]
async fn a_lock_is_acquired_shown_by_info_and_released() {
    let (_server, client) = start().await;
    let guard = client.lock("k").acquire().await.unwrap();
    assert!(guard.is_valid() && guard.mode() == Mode::Write);
    let info = client.info("k").await.unwrap().unwrap();
    assert_eq!((info.mode, info.holders), (Some(Mode::Write), 1));
    assert_eq!(info.holds[0].token, guard.token());
    assert_eq!(info.holds[0].owner, guard.owner());
    guard.release().await.unwrap();
    assert_eq!(client.info("k").await.unwrap(), None);
}

#[tokio::test]
async fn an_uncontended_acquisition_is_two_commands_on_the_wire() {
    let (server, client) = start().await;
    drop(client.lock("warm").acquire().await.unwrap());
    await_free(&client, "warm").await;
    let before = commands(&server);
    let guard = client.lock("k").acquire().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(commands(&server) - before, 2);
}

fn commands(server: &Server) -> u64 {
    let names = ["ACQUIRE", "RLOCK", "RENEW", "RELEASE", "FENCE"];
    let calls = names.map(|name| server.calls(&format!("LOCK.{name}")));
    calls.iter().sum()
}

#[tokio::test]
async fn an_acquisition_that_waits_is_two_commands_without_those_for_letters() {
    let (server, client) = start().await;
    for lease in [ms(60_000), ms(1000)] {
        let holder = client.lock("k").acquire().await.unwrap();
        let before = commands(&server);
        let waiting = tokio::spawn(client.lock("k").lease(lease).auto_renew(false).acquire());
        await_waiters(&client, "k", 1).await;
        await_letter_awaited(&server).await;
        holder.release().await.unwrap();
        let guard = waiting.await.unwrap().unwrap();
        guard.release().await.unwrap();
        // Plus the holder's release.
        assert_eq!(commands(&server) - before, 2 + 1, "{lease:?}");
    }
}

/// Waits until a client waits for a letter.
async fn await_letter_awaited(server: &Server) {
    let is_blocked = async || server.info("clients")["blocked_clients"] == "1";
    support::eventually("it waits for the letter", is_blocked).await;
}

#[tokio::test]
async fn an_acquisition_whose_grant_cannot_be_confirmed_in_time_waits_again() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let far = client_within(proxy.url(), ms(30_000)).await;
    let near = client(&server).await;
    let holder = near.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn(
        far.lock("k")
            .lease(ms(6_000))
            .auto_renew(false)
            .wait(ms(60_000))
            .acquire(),
    );
    await_waiters(&near, "k", 1).await;
    await_letter_awaited(&server).await;
    // The letter arrives past half of the lease, and its confirmation after the end.
    proxy.set(Traffic::Takes(ms(3_500)));
    holder.release().await.unwrap();
    support::eventually_in(ms(40_000), "it has tried to confirm", || async {
        server.calls("LOCK.RENEW") > 0
    })
    .await;
    proxy.set(Traffic::Flows);
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.is_valid());
    assert_eq!(
        near.info("k").await.unwrap().unwrap().holds[0].token,
        guard.token()
    );
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_wait_that_times_out_is_busy_and_leaves_no_waiter() {
    let (_server, client) = start().await;
    let guard = client.lock("k").acquire().await.unwrap();
    let started = Instant::now();
    let error = client.lock("k").wait(ms(100)).acquire().await.unwrap_err();
    assert!(
        matches!(error, Error::Busy { waited } if waited >= ms(100)),
        "{error:?}"
    );
    assert!(started.elapsed() >= ms(100));
    assert_eq!(client.info("k").await.unwrap().unwrap().waiters, 0);
    drop(guard);
    await_free(&client, "k").await;
}

#[tokio::test]
async fn a_waiter_is_granted_the_lock_when_the_holder_releases_it() {
    let (_server, client) = start().await;
    let guard = client.lock("k").acquire().await.unwrap();
    let waiter = tokio::spawn(client.lock("k").acquire());
    await_waiters(&client, "k", 1).await;
    let first = guard.token();
    guard.release().await.unwrap();
    let second = waiter.await.unwrap().unwrap();
    assert!(second.token() > first && second.is_valid());
}

#[tokio::test]
async fn a_lease_granted_after_a_long_wait_counts_from_the_grant() {
    let (_server, client) = start().await;
    let guard = client.lock("k").acquire().await.unwrap();
    let lease = ms(1000);
    let waiter = tokio::spawn(client.lock("k").lease(lease).acquire());
    support::eventually("it has waited for a while", async || {
        let info = client.info("k").await.unwrap().unwrap();
        info.queue.first().is_some_and(|it| it.waited >= lease / 3)
    })
    .await;
    let freed = BootInstant::now();
    drop(guard);
    let guard = waiter.await.unwrap().unwrap();
    // The client counts from when it sent the call that collected the letter: up to this much earlier.
    let sent_before = ms(200);
    assert!(guard.deadline() + sent_before >= freed + (lease - lease / 100 - ms(2)));
    assert!(guard.is_valid());
}

#[tokio::test]
async fn a_lock_that_is_released_or_passed_on_costs_no_leave() {
    let (server, client) = start().await;
    for number in 0..3 {
        let guard = client.lock("k").acquire().await.unwrap();
        if number == 0 {
            let heir = Owner::new();
            let token = guard.pass_to(heir.name(), ms(60_000)).await.unwrap();
            let guard = client.lock("k").take_over(heir.name(), token).await;
            guard.unwrap().release().await.unwrap();
        } else {
            guard.release().await.unwrap();
        }
    }
    assert!(client.close(ms(20_000)).await);
    assert_eq!(server.calls("LOCK.LEAVE"), 0);
}

#[tokio::test]
async fn a_late_release_does_not_end_the_next_hold() {
    let (server, client) = start().await;
    let owner = Owner::new();
    let lock = client.lock("k").owner(&owner);
    let first = lock.clone().acquire().await.unwrap();
    cmd!(server.connect(), "DEL", "k");
    assert_lost(first.renew().await, Loss::Denied);
    assert_eq!(first.loss(), Some(Loss::Denied));
    let second = lock.clone().acquire().await.unwrap();
    assert_lost(first.release().await, None);
    assert!(second.renew().await.is_ok());
}

#[tokio::test]
async fn a_renewal_by_hand_moves_the_deadline() {
    let (_server, client) = start().await;
    let lock = client.lock("k").lease(ms(500)).auto_renew(false);
    let guard = lock.acquire().await.unwrap();
    assert!(guard.deadline().remaining() <= ms(500));
    let first = guard.deadline();
    support::eventually("a while is over", async || first.remaining() < ms(400)).await;
    guard.renew().await.unwrap();
    assert!(guard.deadline() > first);
}

#[tokio::test]
async fn an_unreachable_server_is_a_connection_error_that_names_it() {
    let mut server = Server::start();
    let (url, address) = (server.url(), format!("127.0.0.1:{}", server.port()));
    server.sigkill();
    let error = Client::connect(url).await.unwrap_err();
    assert!(
        matches!(&error, Error::Connection { server, .. } if *server == address),
        "{error:?}"
    );
    assert!(error.to_string().contains(&address), "{error}");
}

#[tokio::test]
async fn an_idle_connection_that_died_is_replaced() {
    let (server, client) = start().await;
    let guard = client.lock("k").acquire().await.unwrap();
    assert!(client.lock("k").wait(ms(5)).acquire().await.is_err());
    cmd!(server.connect(), "CLIENT KILL TYPE normal SKIPME yes");
    let busy = client.lock("k").wait(ms(500)).acquire().await;
    assert!(busy.unwrap_err().is_busy());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_key_of_another_type_is_refused_with_the_error_of_the_server() {
    let (server, client) = start().await;
    cmd!(server.connect(), "SET", "k", "v");
    let error = client.lock("k").acquire().await.unwrap_err();
    assert_code(&error, "WRONGTYPE");
}

#[tokio::test]
async fn the_longest_queues_are_listed() {
    let (_server, client) = start().await;
    let guard = client.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn(client.lock("k").acquire());
    let info = await_waiters(&client, "k", 1).await;
    assert_eq!((info.queue.len(), info.queue[0].left), (1, None));
    let top = client.top(10).await.unwrap();
    assert_eq!(
        (top[0].key.as_slice(), top[0].waiters),
        (b"k".as_slice(), 1)
    );
    drop(guard);
    drop(waiting.await.unwrap().unwrap());
}
