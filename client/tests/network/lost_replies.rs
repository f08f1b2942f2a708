//! Requests that the server ran, and whose replies were lost with their connection.

use mortise_client::Error;
use mortise_harness::Server;

use crate::support::proxy::{Proxy, Traffic};
use crate::support::{await_free, client, client_of, ms};

#[tokio::test]
async fn a_take_over_of_unknown_outcome_leaves_the_lock() {
    let server = Server::start();
    let (proxy, direct) = (Proxy::of(&server).await, client(&server).await);
    let far = client_of(&proxy.url()).await;
    let guard = direct.lock("k").acquire().await.unwrap();
    let token = guard.pass_to("heir", ms(600_000)).await.unwrap();
    proxy.set(Traffic::LosesReplies);
    let lock = far.lock("k").lease(ms(600_000)).wait(ms(50));
    let error = lock.clone().take_over("heir", token).await.unwrap_err();
    assert!(matches!(error, Error::Connection { .. }), "{error:?}");
    proxy.set(Traffic::Cut);
    proxy.set(Traffic::Flows);
    await_free(&direct, "k").await;
}
