//! Requests over a quorum that can come to nothing: they end, and say why.

use mortise_client::{Error, Owner};
use mortise_harness::cmd;

use crate::support::ms;
use crate::support::quorum::Servers;

/// Longer than any of these takes, and no time at all beside for ever.
const LONG: std::time::Duration = std::time::Duration::from_secs(20);

/// A client, and a lock that it holds, known to the first two servers, of which the second is gone, while the third, which
/// was not there then, is.
async fn known_to_a_minority(
    owner: Option<&Owner>,
) -> (Servers, mortise_client::Lock, mortise_client::Guard) {
    let mut servers = Servers::start(3);
    let quorum = servers.quorum().await;
    servers.0[2].sigkill();
    let lock = quorum.lock("k").lease(ms(10_000));
    let lock = match owner {
        Some(owner) => lock.owner(owner).reentrant(),
        None => lock,
    };
    let guard = lock.acquire().await.unwrap();
    servers.0[2].start_again();
    servers.warm(&quorum).await;
    servers.0[1].sigkill();
    (servers, lock, guard)
}

#[tokio::test]
async fn re_entry_where_the_majority_that_knows_the_hold_is_gone_ends() {
    let (_servers, lock, _guard) = known_to_a_minority(Some(&Owner::new())).await;
    let again = tokio::time::timeout(LONG, lock.acquire()).await.unwrap();
    let error = again.map(drop).unwrap_err();
    assert!(
        matches!(error, Error::NoQuorum { .. } | Error::Lost(_)),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_fence_that_is_refused_is_told() {
    let mut servers = Servers::start(3);
    // The two that are left never agree by themselves.
    servers.0[2].sigkill();
    let quorum = servers.builder().node_timeout(ms(500));
    let quorum = quorum.connect().await.unwrap();
    for server in &servers.0[..2] {
        cmd!(server.connect(), "ACL", "SETUSER", "default", "-lock.fence");
    }
    let lock = quorum.lock("k");
    let taken = tokio::time::timeout(LONG, lock.acquire()).await.unwrap();
    let error = taken.map(drop).unwrap_err();
    assert!(error.to_string().contains("NOPERM"), "{error:?}");
}
