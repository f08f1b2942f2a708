//! Releases and changes of mode that the server refuses, that get stuck, or that meet a hold that is gone.

use std::task::Poll;

use mortise_client::{Error, Loss, Mode};
use mortise_harness::{Server, cmd};

use crate::support::dropping::poll_once;
use crate::support::proxy::Traffic;
use crate::support::{
    self, assert_code, assert_lost, await_free, await_waiters, eventually, ms, start,
    start_behind_proxy,
};

/// Makes the server refuse RELEASE and LEAVE, or accept them again.
fn refuse_releases(server: &Server, refuse: bool) {
    let sign = if refuse { "-" } else { "+" };
    for command in ["lock.release", "lock.leave"] {
        let rule = format!("{sign}{command}");
        cmd!(server.connect(), "ACL", "SETUSER", "default", rule);
    }
}

#[tokio::test]
async fn a_refused_downgrade_is_an_error_and_leaves_the_write_hold() {
    let (server, client) = start().await;
    let guard = client.lock("k").acquire().await.unwrap();
    refuse_releases(&server, true);
    let error = guard.downgrade().await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(guard.is_valid() && guard.mode() == Mode::Write);
    assert!(client.lock("k").try_read().await.unwrap().is_none());
    refuse_releases(&server, false);
    guard.downgrade().await.unwrap();
    let other = client.lock("k").read().await.unwrap();
    assert!(guard.is_valid() && other.is_valid() && guard.mode() == Mode::Read);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_guard_is_no_writer_from_the_moment_that_its_downgrade_is_sent() {
    let (_server, client) = start().await;
    let guard = client.lock("k").acquire().await.unwrap();
    let mut downgrading = Box::pin(guard.downgrade());
    let mut downgraded = Poll::Pending;
    let reading = tokio::spawn(client.lock("k").read());
    // It waits for the reply to the request that makes the writer a reader too, and then for this one.
    while !reading.is_finished() || downgraded.is_pending() {
        if downgraded.is_pending() {
            downgraded = poll_once(&mut downgrading).await;
        }
        tokio::time::sleep(ms(1)).await;
        let readers = client.info("k").await.unwrap().unwrap().holders;
        assert!(readers == 1 || guard.mode() == Mode::Read);
    }
    let _reader = reading.await.unwrap().unwrap();
    assert!(matches!(downgraded, Poll::Ready(Ok(()))), "{downgraded:?}");
}

#[tokio::test]
async fn a_release_that_the_server_forbids_is_not_repeated_and_closing_says_so() {
    let (server, client) = start().await;
    let guard = client.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    refuse_releases(&server, true);
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(!client.close(ms(20_000)).await, "it is still taken");
    // The server has refused a release and a LEAVE once, and a closed client sends nothing more.
    let refused = server.errors("NOPERM");
    assert!(refused <= 2, "{refused}");
}

#[tokio::test]
async fn a_refused_release_is_repeated_while_the_reason_may_pass() {
    let (server, client) = start().await;
    let guard = client.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    cmd!(server.connect(), "CONFIG SET min-replicas-to-write 1");
    let error = guard.release().await.unwrap_err();
    assert_code(&error, "NOREPLICAS");
    cmd!(server.connect(), "CONFIG SET min-replicas-to-write 0");
    await_free(&client, "k").await;
}

#[tokio::test]
async fn a_lock_whose_release_is_stuck_is_acquired_again_over_another_connection() {
    let (server, proxy, slow) = start_behind_proxy().await;
    let lock = slow.lock("k").lease(ms(60_000));
    let guard = lock.clone().acquire().await.unwrap();
    let token = guard.token();
    proxy.set(Traffic::StallsOld);
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, Error::Connection { .. }), "{error:?}");
    let again = lock.acquire().await.unwrap();
    assert!(again.token() > token);
    // The stuck release arrives, and changes nothing.
    proxy.set(Traffic::Flows);
    support::assert_holds(again, &server, "k").await;
}

#[tokio::test]
async fn a_denied_renewal_is_a_loss_for_all_guards_of_the_hold() {
    let (server, client) = start().await;
    let outer = client.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let inner = outer.reenter();
    cmd!(server.connect(), "DEL", "k");
    let renewed = inner.renew().await;
    assert_lost(renewed, Loss::Denied);
    assert_eq!(outer.loss(), Some(Loss::Denied));
    for guard in [inner, outer] {
        assert_lost(guard.release().await, None);
    }
}

#[tokio::test]
async fn changing_the_mode_of_a_hold_that_is_gone_is_a_loss_and_so_is_releasing_it() {
    let (server, client) = start().await;
    let guard = client.lock("k").acquire().await.unwrap();
    cmd!(server.connect(), "DEL", "k");
    assert_lost(guard.release().await, None);
    for mode in [Mode::Read, Mode::Write] {
        let lock = client.lock("k").lease(ms(60_000));
        let guard = match mode {
            Mode::Read => lock.read().await.unwrap(),
            Mode::Write => lock.acquire().await.unwrap(),
        };
        cmd!(server.connect(), "DEL", "k");
        let changed = match mode {
            Mode::Read => guard.upgrade().await,
            Mode::Write => guard.downgrade().await,
        };
        let error = changed.unwrap_err();
        assert!(matches!(error, Error::Lost(_)), "{error:?}");
        assert!(!guard.is_valid(), "{mode}");
        drop(guard);
        await_free(&client, "k").await;
    }
}

#[tokio::test]
async fn an_upgrade_whose_read_hold_goes_while_it_waits_ends_with_the_loss() {
    let (server, client) = start().await;
    let lock = client.lock("k").lease(ms(60_000));
    let _other = lock.clone().read().await.unwrap();
    let guard = lock.read().await.unwrap();
    let upgrade = tokio::spawn(async move { (guard.upgrade().await, guard) });
    await_waiters(&client, "k", 1).await;
    // Before the first renewal in the background.
    cmd!(server.connect(), "DEL", "k");
    let upgraded = tokio::time::timeout(ms(15_000), upgrade).await;
    let (upgraded, guard) = upgraded.expect("it notices the loss").unwrap();
    assert_lost(upgraded, None);
    assert_eq!(guard.loss(), Some(Loss::Denied));
}

#[tokio::test]
async fn an_upgrade_waits_while_the_server_is_gone_only_as_long_as_its_hold_lasts() {
    let (mut server, client) = start().await;
    let guard = client.lock("k").lease(ms(1_500)).read().await.unwrap();
    server.sigkill();
    let upgraded = guard.upgrade().await;
    assert!(
        matches!(upgraded, Err(Error::Connection { .. } | Error::Lost(_))),
        "{upgraded:?}"
    );
    eventually("it is lost", async || !guard.is_valid()).await;
}
