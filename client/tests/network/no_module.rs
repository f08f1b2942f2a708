//! Servers without the module: the error explains how to load it, however the client connects.

use mortise_client::{Client, Error, Quorum};
use mortise_harness::Server;

use crate::support::ms;

fn bare() -> Server {
    Server::builder().without_module().start()
}

#[track_caller]
fn assert_explains_how_to_load(error: &Error) {
    assert!(matches!(error, Error::NoModule { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("loadmodule") && text.contains("libmortise.so"),
        "{text}"
    );
    assert!(!error.is_transient());
}

#[tokio::test]
async fn without_the_module_connecting_explains_how_to_load_it_however_the_client_connects() {
    let server = Server::builder().without_module().unix_socket().start();
    let error = Client::connect(server.url()).await.unwrap_err();
    assert_explains_how_to_load(&error);
    assert!(error.to_string().contains(&server.addr()), "{error}");
    let socket = format!("unix://{}", server.socket().display());
    assert_explains_how_to_load(&Client::connect(socket).await.unwrap_err());
    let sentinel = Server::builder().sentinel();
    let sentinel = sentinel.watching("locks", server.port(), 1).start();
    let client = Client::sentinel([sentinel.url()], "locks").unwrap();
    assert_explains_how_to_load(&client.connect().await.unwrap_err());
}

#[tokio::test]
async fn without_the_module_the_first_command_of_any_kind_explains_how_to_load_it() {
    let server = bare();
    let client = Client::builder(server.url()).unwrap().build().unwrap();
    assert_explains_how_to_load(&client.lock("k").acquire().await.unwrap_err());
    assert_explains_how_to_load(&client.lock("k").try_read().await.unwrap_err());
    assert_explains_how_to_load(&client.info("k").await.unwrap_err());
    assert_explains_how_to_load(&client.top(1).await.unwrap_err());
}

#[tokio::test]
async fn an_error_of_a_quorum_names_each_server_without_the_module() {
    let servers = [Server::start(), bare(), bare()];
    let urls = servers.each_ref().map(Server::url);
    let builder = || Quorum::builder(&urls).unwrap().response_timeout(ms(500));
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
            let node = node.unwrap_or_else(|| panic!("{error:?}"));
            assert_explains_how_to_load(&node.reason);
        }
        assert!(error.to_string().contains("loadmodule"), "{error}");
    }
}

#[tokio::test]
async fn a_quorum_works_while_a_minority_lacks_the_module() {
    let servers = [Server::start(), bare(), Server::start()];
    let urls = servers.each_ref().map(Server::url);
    let quorum = Quorum::builder(&urls).unwrap().response_timeout(ms(500));
    let quorum = quorum.connect().await.unwrap();
    let guard = quorum.lock("k").acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[cfg(feature = "cluster")]
#[tokio::test]
async fn without_the_module_the_error_of_a_cluster_explains_how_to_load_it() {
    let cluster = mortise_harness::Cluster::start(1, || Server::builder().without_module());
    let url = cluster.primaries[0].url();
    let error = Client::cluster([url]).unwrap().connect().await.unwrap_err();
    assert_explains_how_to_load(&error);
}
