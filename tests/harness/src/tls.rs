//! Servers that speak TLS, with certificates of an authority of the test's own.

use std::fmt;
use std::fs;
use std::net::TcpListener;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::server::Server;

/// How often another port is tried.
const PORT_ATTEMPTS: u32 = 20;

/// An authority that signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// Makes one that nobody trusts yet.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Authority {
        let mut params = named("authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, key()).expect("a certificate"))
    }

    /// Its own certificate.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Has the server speak TLS besides, with a certificate for `host`, and returns the port. The authority's certificate is in the server's
    /// folder as `ca.crt`.
    ///
    /// # Panics
    /// If the server cannot speak TLS.
    #[track_caller]
    pub fn speak_tls(&self, server: &Server, host: &str) -> u16 {
        let [cert, key] = self.sign(server, "server", host);
        let ca = write(server, "ca.crt", &self.pem());
        let mut conn = server.connect();
        for _ in 0..PORT_ATTEMPTS {
            let listener = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
            let port = listener.expect("a free port").port();
            let set = crate::try_cmd!(
                conn,
                "CONFIG SET tls-cert-file {cert} tls-key-file {key} tls-ca-cert-file {ca} tls-auth-clients no tls-port {port}"
            );
            match set {
                Ok(_) => return port,
                Err(error) if error.contains("listen") => {}
                Err(error) => panic!("the server does not speak TLS: {error}"),
            }
        }
        panic!("no free port");
    }

    /// Writes a certificate for `name` and its key into the server's folder, as `file.crt` and `file.key`, and returns both paths.
    ///
    /// # Panics
    /// If the folder cannot be written.
    #[must_use]
    pub fn sign(&self, server: &Server, file: &str, name: &str) -> [String; 2] {
        let key = key();
        let certificate = named(name).signed_by(&key, &self.0).expect("a certificate");
        [
            write(server, &format!("{file}.crt"), &certificate.pem()),
            write(server, &format!("{file}.key"), &key.serialize_pem()),
        ]
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

/// A certificate with a subject name of its own: with its issuer's name it would look self-signed.
fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn write(server: &Server, file: &str, text: &str) -> String {
    let path = server.dir().join(file);
    fs::write(&path, text).expect("the folder can be written");
    path.to_str().expect("a path in UTF-8").to_owned()
}
