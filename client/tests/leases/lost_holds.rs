//! The client has lost a hold that the server may still keep. Taking the lock again leaves nothing of the old hold.

use mortise_client::{Client, Error, Lock, Owner};
use mortise_harness::Server;

use crate::support::proxy::{Proxy, Traffic};
use crate::support::{await_free, client, client_of, ms};

/// A server, and a lock with an owner that is about to lose it.
struct Scene {
    _server: Server,
    proxy: Proxy,
    lock: Lock,
    direct: Client,
}

impl Scene {
    async fn new() -> Scene {
        let server = Server::start();
        let proxy = Proxy::of(&server).await;
        let (mine, direct) = (client_of(&proxy.url()).await, client(&server).await);
        let lock = mine.lock("k").owner(&Owner::new()).lease(ms(1_000));
        Scene {
            _server: server,
            proxy,
            lock: lock.auto_renew(false),
            direct,
        }
    }

    /// The server renews the hold for a minute, but the client does not get the reply.
    async fn lose(&self, guard: &mortise_client::Guard) {
        self.proxy.set(Traffic::LosesReplies);
        guard.renew_for(ms(60_000)).await.unwrap_err();
        self.proxy.set(Traffic::Flows);
        guard.lost().await;
    }
}

#[tokio::test]
async fn taking_a_lost_write_lock_again_to_read_lets_other_readers_in() {
    let scene = Scene::new().await;
    let old = scene.lock.write().await.unwrap();
    scene.lose(&old).await;
    let new = scene.lock.clone().lease(ms(60_000)).read().await.unwrap();
    assert!(scene.direct.lock("k").try_read().await.unwrap().is_some());
    drop(old);
    assert!(new.is_valid());
    new.release().await.unwrap();
    await_free(&scene.direct, "k").await;
}

#[tokio::test]
async fn taking_a_lost_read_lock_again_to_write_leaves_nothing_of_the_old_hold() {
    let scene = Scene::new().await;
    let old = scene.lock.read().await.unwrap();
    scene.lose(&old).await;
    let new = scene.lock.clone().lease(ms(60_000)).write().await.unwrap();
    drop(old);
    assert!(new.is_valid());
    new.release().await.unwrap();
    await_free(&scene.direct, "k").await;
}

#[tokio::test]
async fn a_release_is_repeated_only_for_a_lease_that_the_server_accepted() {
    let mut server = Server::start();
    let client = client(&server).await;
    let owner = Owner::new();
    let lock = client.lock("k").lease(ms(1_000)).owner(&owner);
    let guard = lock.acquire().await.unwrap();
    let refused = guard.renew_for(ms(1 << 50)).await.unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused:?}");
    server.sigkill();
    drop(guard);
    // The client repeats the release only until the lease is over. It then tries for some 16 s to connect again.
    let again = tokio::time::timeout(ms(60_000), lock.acquire()).await;
    assert!(again.unwrap().is_err());
}
