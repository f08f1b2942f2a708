//! Releases and changes of mode that the server refuses, that get stuck, or that meet a hold that is gone.

use mortise_client::{Error, Loss, Mode};
use mortise_harness::{Server, cmd};

use crate::support::proxy::{Proxy, Traffic};
use crate::support::{self, await_free, await_waiters, client, client_of, eventually, ms};

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
    let server = Server::start();
    let client = client(&server).await;
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
async fn a_release_that_the_server_forbids_is_not_repeated_and_closing_says_so() {
    let server = Server::start();
    let client = client(&server).await;
    let guard = client.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    refuse_releases(&server, true);
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(!client.close(ms(20_000)).await, "it is still taken");
    let refused = || -> u64 {
        server
            .info("commandstats")
            .get("cmdstat_lock.leave")
            .map_or(0, |stats| rejected(stats))
    };
    let rejected_before = refused();
    tokio::time::sleep(ms(1_200)).await;
    assert_eq!(refused(), rejected_before);
    assert!(rejected_before <= 1, "{rejected_before}");
}

fn rejected(stats: &str) -> u64 {
    let field = stats
        .split(',')
        .find_map(|field| field.strip_prefix("rejected_calls="));
    field.map_or(0, |number| number.parse().unwrap())
}

#[tokio::test]
async fn a_refused_release_is_repeated_while_the_reason_may_pass() {
    let server = Server::start();
    let client = client(&server).await;
    let guard = client.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    cmd!(
        server.connect(),
        "CONFIG",
        "SET",
        "min-replicas-to-write",
        1
    );
    let error = guard.release().await.unwrap_err();
    assert!(
        matches!(&error, Error::Refused { code, .. } if code == "NOREPLICAS"),
        "{error:?}"
    );
    cmd!(
        server.connect(),
        "CONFIG",
        "SET",
        "min-replicas-to-write",
        0
    );
    await_free(&client, "k").await;
}

#[tokio::test]
async fn a_lock_whose_release_is_stuck_is_acquired_again_over_another_connection() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let slow = client_of(&proxy.url()).await;
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
    let server = Server::start();
    let client = client(&server).await;
    let outer = client.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let inner = outer.reenter();
    cmd!(server.connect(), "DEL", "k");
    assert!(matches!(
        inner.renew().await,
        Err(Error::Lost(Loss::Denied))
    ));
    assert_eq!(outer.loss(), Some(Loss::Denied));
    for guard in [inner, outer] {
        let released = guard.release().await;
        assert!(matches!(released, Err(Error::Lost(_))), "{released:?}");
    }
}

#[tokio::test]
async fn changing_the_mode_of_a_hold_that_is_gone_is_a_loss() {
    let server = Server::start();
    let client = client(&server).await;
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
    let server = Server::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(ms(60_000));
    let _other = lock.clone().read().await.unwrap();
    let guard = lock.read().await.unwrap();
    let upgrade = tokio::spawn(async move { (guard.upgrade().await, guard) });
    await_waiters(&client, "k", 1).await;
    // Before the first renewal in the background.
    cmd!(server.connect(), "DEL", "k");
    let (upgraded, guard) = tokio::time::timeout(ms(15_000), upgrade)
        .await
        .expect("it notices the loss")
        .unwrap();
    assert!(matches!(upgraded, Err(Error::Lost(_))), "{upgraded:?}");
    assert_eq!(guard.loss(), Some(Loss::Denied));
}

#[tokio::test]
async fn an_upgrade_waits_while_the_server_is_gone_only_as_long_as_its_hold_lasts() {
    let mut server = Server::start();
    let client = client(&server).await;
    let guard = client.lock("k").lease(ms(1_500)).read().await.unwrap();
    server.sigkill();
    let upgraded = guard.upgrade().await;
    assert!(
        matches!(upgraded, Err(Error::Connection { .. } | Error::Lost(_))),
        "{upgraded:?}"
    );
    eventually("it is lost", async || !guard.is_valid()).await;
}
