//! `rediss://`: valid certificates, certificates of another authority, and of another host.

use std::time::Duration;

use mortise_client::redis::{self, TlsCertificates};
use mortise_client::{Builder, Client, Error, Quorum};
use mortise_harness::{Authority, Server};

use crate::support::{await_waiters, ms};

/// Unoptimised, a handshake takes long on a busy machine.
const HANDSHAKE: Duration = Duration::from_secs(20);

async fn connect(builder: Builder<Client>) -> Result<Client, Error> {
    builder.connect_timeout(HANDSHAKE).connect().await
}

/// A client of this port that trusts `authority`.
fn trusting(authority: &Authority, port: u16) -> Builder<Client> {
    let certificates = TlsCertificates {
        client_tls: None,
        root_cert: Some(authority.pem().into_bytes()),
    };
    let redis =
        redis::Client::build_with_tls(format!("rediss://127.0.0.1:{port}/"), certificates).unwrap();
    Client::with(move || {
        let redis = redis.clone();
        let patient = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        async move {
            redis
                .get_multiplexed_async_connection_with_config(&patient)
                .await
        }
    })
}

#[tokio::test]
async fn locks_are_acquired_awaited_and_renewed_over_tls() {
    let authority = Authority::new();
    let server = Server::start();
    let port = authority.speak_tls(&server, "127.0.0.1");
    let client = connect(trusting(&authority, port)).await.unwrap();
    let guard = client.lock("k").lease(ms(900)).acquire().await.unwrap();
    let waiting = tokio::spawn(client.lock("k").acquire());
    await_waiters(&client, "k", 1).await;
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_valid());
}

#[tokio::test]
async fn a_certificate_of_another_authority_or_host_is_a_connection_error_that_names_the_reason() {
    let server = Server::start();
    let authority = Authority::new();
    let port = authority.speak_tls(&server, "127.0.0.1");
    let elsewhere = Server::start();
    let other_port = authority.speak_tls(&elsewhere, "locks.example");
    for builder in [
        trusting(&Authority::new(), port),
        trusting(&authority, other_port),
        // Nor does the system trust it, which is the default.
        Client::builder(format!("rediss://127.0.0.1:{port}/")).unwrap(),
    ] {
        let error = connect(builder).await.unwrap_err();
        assert!(matches!(error, Error::Connection { .. }), "{error:?}");
        assert!(error.to_string().contains("certificate"), "{error}");
    }
}

#[tokio::test]
async fn a_missing_module_is_its_own_error_over_tls_too() {
    let authority = Authority::new();
    let server = Server::builder().without_module().start();
    let port = authority.speak_tls(&server, "127.0.0.1");
    let error = connect(trusting(&authority, port)).await.unwrap_err();
    assert!(matches!(error, Error::NoModule { .. }), "{error:?}");
}

#[tokio::test]
async fn a_quorum_works_over_tls() {
    let authority = Authority::new();
    let servers = [(); 3].map(|()| Server::start());
    let ports = servers.each_ref();
    let ports = ports.map(|server| authority.speak_tls(server, "127.0.0.1"));
    let clients = ports.map(|port| trusting(&authority, port));
    let quorum = Quorum::of(clients).unwrap().response_timeout(ms(10_000));
    let quorum = quorum.connect_timeout(HANDSHAKE).connect().await.unwrap();
    let guard = quorum.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn an_error_says_which_end_may_not_speak_tls() {
    let authority = Authority::new();
    let server = Server::start();
    let port = authority.speak_tls(&server, "127.0.0.1");
    let plain = server.addr();
    for (url, instead) in [
        (
            format!("rediss://{plain}/"),
            "redis:// instead of rediss://",
        ),
        (
            format!("redis://127.0.0.1:{port}/"),
            "rediss:// instead of redis://",
        ),
    ] {
        let error = connect(Client::builder(url).unwrap()).await.unwrap_err();
        assert!(error.to_string().contains(instead), "{error}");
    }
}
