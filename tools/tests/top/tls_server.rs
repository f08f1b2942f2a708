//! A server that speaks TLS, with an authority of its own.

use std::fs;
use std::net::TcpListener;

use mortise_harness::{Server, cmd};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// How often another port is tried.
const PORT_ATTEMPTS: u32 = 20;

/// Where it listens, and the files that a client needs.
pub(crate) struct Tls {
    pub(crate) port: u16,
    /// Of the authority that has signed the certificates.
    pub(crate) ca: String,
    pub(crate) client_cert: String,
    pub(crate) client_key: String,
}

impl Tls {
    /// Has the server speak TLS besides.
    #[track_caller]
    pub(crate) fn of(server: &Server) -> Tls {
        let mut params = named("authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let write = |name: &str, text: String| {
            let path = server.dir().join(name);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let signed = |name: &str, of: &str| {
            let key = KeyPair::generate().unwrap();
            let params = named(of);
            let certificate = params.signed_by(&key, &authority).unwrap();
            let cert = write(&format!("{name}.crt"), certificate.pem());
            (cert, write(&format!("{name}.key"), key.serialize_pem()))
        };
        let (cert, key) = signed("server", "127.0.0.1");
        let (client_cert, client_key) = signed("client", "client.example");
        let ca = write("ca.crt", authority.pem());
        Tls {
            port: listen(server, [&cert, &key, &ca]),
            ca,
            client_cert,
            client_key,
        }
    }

    /// From now on a client has to have a certificate, too.
    #[track_caller]
    pub(crate) fn want_certificates(&self, server: &Server) {
        cmd!(server.connect(), "CONFIG", "SET", "tls-auth-clients", "yes");
    }
}

/// A certificate with a subject name of its own: with its issuer's name it would look self-signed.
fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

#[track_caller]
fn listen(server: &Server, [cert, key, ca]: [&str; 3]) -> u16 {
    let mut conn = server.connect();
    for _ in 0..PORT_ATTEMPTS {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let port_text = port.to_string();
        let settings = [
            ["tls-cert-file", cert],
            ["tls-key-file", key],
            ["tls-ca-cert-file", ca],
            ["tls-auth-clients", "no"],
            ["tls-port", &port_text],
        ];
        let words = [&["CONFIG", "SET"], settings.as_flattened()].concat();
        match conn.try_cmd(&words) {
            Ok(_) => return port,
            Err(error) if error.contains("listen") => {}
            Err(error) => panic!("the server does not speak TLS: {error}"),
        }
    }
    panic!("no free port");
}
