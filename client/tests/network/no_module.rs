//! Servers without the module: whichever way they are reached, the error says how to load it.

use mortise_client::{Client, Error, IntoServer, NodeReason, Quorum};
use mortise_harness::Server;

use crate::support::ms;

fn bare() -> Server {
    Server::builder().without_module().start()
}

#[track_caller]
fn assert_says_how_to_load(error: &Error) {
    assert!(matches!(error, Error::NoModule { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("loadmodule") && text.contains("libmortise.so"),
        "{text}"
    );
    assert!(!error.is_transient());
}

#[tokio::test]
async fn over_tcp_the_error_names_the_server() {
    let server = bare();
    let error = Client::connect(server.url()).await.unwrap_err();
    assert_says_how_to_load(&error);
    assert!(error.to_string().contains(&server.addr()), "{error}");
}

#[tokio::test]
async fn over_a_unix_socket() {
    let server = Server::builder().without_module().unix_socket().start();
    let url = format!("unix://{}", server.socket().display());
    assert_says_how_to_load(&Client::connect(url).await.unwrap_err());
}

#[tokio::test]
async fn over_a_connection_that_the_application_has() {
    let server = bare();
    let redis = mortise_client::server::redis::Client::open(server.url()).unwrap();
    let connection = redis.get_multiplexed_async_connection().await.unwrap();
    let over = redis.into_server().unwrap().over(connection);
    let builder = Client::builder(over).unwrap();
    assert_says_how_to_load(&builder.connect().await.unwrap_err());
}

#[tokio::test]
async fn where_nobody_has_asked_before_each_command_says_so() {
    let server = bare();
    let client = Client::builder(server.url()).unwrap().build().unwrap();
    assert_says_how_to_load(&client.lock("k").acquire().await.unwrap_err());
    assert_says_how_to_load(&client.lock("k").try_read().await.unwrap_err());
    assert_says_how_to_load(&client.info("k").await.unwrap_err());
    assert_says_how_to_load(&client.top(1).await.unwrap_err());
}

#[tokio::test]
async fn of_a_quorum_each_server_says_so() {
    let servers = [Server::start(), bare(), bare()];
    let urls = servers.each_ref().map(Server::url);
    let builder = || Quorum::builder(&urls).unwrap().node_timeout(ms(500));
    let connecting = builder().connect().await.unwrap_err();
    let acquiring = builder().build().unwrap().lock("k").acquire().await;
    for error in [connecting, acquiring.unwrap_err()] {
        let Error::NoQuorum {
            needed: 2, nodes, ..
        } = &error
        else {
            panic!("{error:?}");
        };
        for server in &servers[1..] {
            let node = nodes.iter().find(|node| node.server == server.addr());
            let Some(NodeReason::Failed(reason)) = node.map(|node| &node.reason) else {
                panic!("{error:?}");
            };
            assert_says_how_to_load(reason);
        }
        assert!(error.to_string().contains("loadmodule"), "{error}");
    }
}

#[tokio::test]
async fn of_a_quorum_a_minority_may_lack_it() {
    let servers = [Server::start(), bare(), Server::start()];
    let urls = servers.each_ref().map(Server::url);
    let quorum = Quorum::builder(&urls).unwrap().node_timeout(ms(500));
    let quorum = quorum.connect().await.unwrap();
    let guard = quorum.lock("k").acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[cfg(feature = "sentinel")]
#[tokio::test]
async fn through_sentinel() {
    use mortise_client::server::redis::sentinel::{SentinelClient, SentinelServerType};

    let primary = bare();
    let sentinel = Server::builder()
        .sentinel()
        .watching("locks", primary.port(), 1);
    let sentinel = sentinel.start();
    let client = SentinelClient::build(
        vec![sentinel.url()],
        "locks",
        None,
        SentinelServerType::Master,
    );
    let error = Client::connect(client.unwrap()).await.unwrap_err();
    assert_says_how_to_load(&error);
}

#[cfg(feature = "cluster")]
#[tokio::test]
async fn in_a_cluster() {
    let cluster = mortise_harness::Cluster::start(1, || Server::builder().without_module());
    let url = cluster.primaries[0].url();
    let server = mortise_client::Server::cluster([url]).unwrap();
    let error = Client::connect(server).await.unwrap_err();
    assert_says_how_to_load(&error);
}

#[cfg(feature = "blocking")]
#[test]
fn without_a_runtime() {
    let server = bare();
    use mortise_client::blocking::Wait;

    let error = Client::connect(server.url()).wait().unwrap_err();
    assert_says_how_to_load(&error);
}
