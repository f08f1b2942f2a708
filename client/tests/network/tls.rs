//! `rediss://`: valid certificates, certificates of another authority, and of another host.

use std::time::Duration;

use mortise_client::redis::{self, TlsCertificates};
use mortise_client::{Builder, Client, Error, Quorum};
use mortise_harness::Server;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::support::{await_waiters, ms};

/// How many ports the test tries.
const PORT_ATTEMPTS: u32 = 20;

/// Unoptimised, a handshake takes long on a busy machine.
const HANDSHAKE: Duration = Duration::from_secs(20);

type Authority = CertifiedIssuer<'static, KeyPair>;

async fn connect(builder: Builder<Client>) -> Result<Client, Error> {
    builder.connect_timeout(HANDSHAKE).connect().await
}

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Puts TLS before the server, with a certificate for `host`. Returns the port.
fn start(authority: &Authority, host: &str, server: Server) -> (Server, u16) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new([host.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let write = |name: &str, text: String| {
        let path = server.dir().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let certificate = write("server.crt", certificate.pem());
    let key = write("server.key", key.serialize_pem());
    let ca = write("ca.crt", authority.pem());
    let mut conn = server.connect();
    for _ in 0..PORT_ATTEMPTS {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .unwrap()
            .port();
        let set = conn.try_cmd(&[
            "CONFIG",
            "SET",
            "tls-cert-file",
            &certificate,
            "tls-key-file",
            &key,
            "tls-ca-cert-file",
            &ca,
            "tls-auth-clients",
            "no",
            "tls-port",
            &port.to_string(),
        ]);
        match set {
            Ok(_) => return (server, port),
            Err(error) if error.contains("listen") => {}
            Err(error) => panic!("the server does not speak TLS: {error}"),
        }
    }
    panic!("no free port");
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
    let authority = authority();
    let (server, port) = start(&authority, "127.0.0.1", Server::start());
    let client = connect(trusting(&authority, port)).await.unwrap();
    let guard = client.lock("k").lease(ms(900)).acquire().await.unwrap();
    let waiting = tokio::spawn(client.lock("k").acquire());
    await_waiters(&client, "k", 1).await;
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_valid());
    drop(server);
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_a_connection_error_that_names_the_reason() {
    let (_server, port) = start(&authority(), "127.0.0.1", Server::start());
    let error = connect(trusting(&authority(), port)).await.unwrap_err();
    assert!(matches!(error, Error::Connection { .. }), "{error:?}");

    assert!(error.to_string().contains("certificate"), "{error}");
    // Nor does the system trust it, which is the default.
    let error = connect(Client::builder(format!("rediss://127.0.0.1:{port}/")).unwrap())
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Connection { .. }), "{error:?}");

    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_a_connection_error_that_names_the_reason() {
    let authority = authority();
    let (_server, port) = start(&authority, "locks.example", Server::start());
    let error = connect(trusting(&authority, port)).await.unwrap_err();
    assert!(matches!(error, Error::Connection { .. }), "{error:?}");

    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test]
async fn a_missing_module_is_its_own_error_over_tls_too() {
    let authority = authority();
    let (_server, port) = start(
        &authority,
        "127.0.0.1",
        Server::builder().without_module().start(),
    );
    let error = connect(trusting(&authority, port)).await.unwrap_err();
    assert!(matches!(error, Error::NoModule { .. }), "{error:?}");
}

#[tokio::test]
async fn a_quorum_works_over_tls() {
    let authority = authority();
    let servers: Vec<(Server, u16)> = (0..3)
        .map(|_| start(&authority, "127.0.0.1", Server::start()))
        .collect();
    let clients = servers.iter().map(|(_, port)| trusting(&authority, *port));
    let quorum = Quorum::of(clients).unwrap().response_timeout(ms(10_000));
    let quorum = quorum.connect_timeout(HANDSHAKE).connect().await.unwrap();
    let guard = quorum.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn an_error_says_which_end_may_not_speak_tls() {
    let authority = authority();
    let (server, port) = start(&authority, "127.0.0.1", Server::start());
    let error = connect(Client::builder(format!("rediss://{}/", server.addr())).unwrap())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("redis:// instead of rediss://"),
        "{error}"
    );
    let error = connect(Client::builder(format!("redis://127.0.0.1:{port}/")).unwrap())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("rediss:// instead of redis://"),
        "{error}"
    );
}
