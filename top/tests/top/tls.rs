//! Over TLS.

use std::fs;
use std::process::Command;

use mortise_harness::{Conn, Server, cmd, queue};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::{TOP, builder};

/// How often another port is tried.
const PORT_ATTEMPTS: u32 = 20;

#[test]
fn a_server_is_watched_over_tls_if_its_certificate_is_trusted() {
    let server = builder().start();
    let mut a = server.connect();
    let port = listen_with_tls(&server, &mut a);
    cmd!(a, "LOCK.ACQUIRE", "stock:42", "alice", 600_000);
    queue!(a, "box", "LOCK.ACQUIRE", "stock:42", "bob", 1000);
    let url = format!("rediss://127.0.0.1:{port}/");
    let ca = server.dir().join("ca.crt");
    let once = |trusted: &[&str]| {
        // A handshake takes long on a busy machine, where nothing is optimized.
        let args = [&["--once", "--timeout", "20", &*url], trusted].concat();
        let out = Command::new(TOP).args(args).output().unwrap();
        (out.status.success(), String::from_utf8(out.stdout).unwrap())
    };
    let (well, out) = once(&["--cacert", ca.to_str().unwrap()]);
    assert!(well && out.contains("alice"), "{out}");
    let (well, out) = once(&[]);
    assert!(!well && out.contains("certificate"), "{out}");
}

/// Has the server speak TLS, with a certificate that the authority in `ca.crt` of its folder has signed.
fn listen_with_tls(server: &Server, conn: &mut Conn) -> u16 {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let write = |name: &str, text: String| {
        let path = server.dir().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let files = [
        ("tls-cert-file", write("server.crt", certificate.pem())),
        ("tls-key-file", write("server.key", key.serialize_pem())),
        ("tls-ca-cert-file", write("ca.crt", authority.pem())),
    ];
    for _ in 0..PORT_ATTEMPTS {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let mut words = vec!["CONFIG".to_owned(), "SET".to_owned()];
        words.extend(
            files
                .iter()
                .flat_map(|(name, file)| [(*name).to_owned(), file.clone()]),
        );
        let port_text = port.to_string();
        words.extend(["tls-auth-clients", "no", "tls-port", &port_text].map(str::to_owned));
        match conn.try_cmd(&words) {
            Ok(_) => return port,
            Err(error) if error.contains("listen") => {}
            Err(error) => panic!("the server does not speak TLS: {error}"),
        }
    }
    panic!("no free port");
}
