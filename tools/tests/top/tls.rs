//! Over TLS.

use std::process::Command;

use mortise_harness::{Authority, Server, cmd, queue};

use crate::{TOP, builder};

/// Runs the program once against a server that speaks TLS.
struct Once {
    authority: Authority,
    ca: String,
    url: String,
}

impl Once {
    fn of(server: &Server) -> Once {
        let authority = Authority::new();
        let port = authority.speak_tls(server, "127.0.0.1");
        let ca = server.dir().join("ca.crt").to_str().unwrap().to_owned();
        let url = format!("rediss://127.0.0.1:{port}/");
        Once { authority, ca, url }
    }

    fn run(&self, args: &[&str]) -> (bool, String) {
        // A handshake takes long on a busy machine, where nothing is optimized.
        let args = [&["--once", "--timeout", "20", &*self.url], args].concat();
        let out = Command::new(TOP).args(args).output().unwrap();
        (out.status.success(), String::from_utf8(out.stdout).unwrap())
    }
}

#[test]
fn a_server_is_watched_over_tls_if_its_certificate_is_trusted() {
    let server = builder().start();
    let mut a = server.connect();
    let once = Once::of(&server);
    cmd!(a, "LOCK.ACQUIRE", "stock:42", "alice", 600_000);
    queue!(a, "box", "LOCK.ACQUIRE", "stock:42", "bob", 1000);
    let (well, out) = once.run(&["--cacert", &once.ca]);
    assert!(well && out.contains("alice"), "{out}");
    let (well, out) = once.run(&[]);
    assert!(!well && out.contains("certificate"), "{out}");
}

#[test]
fn a_server_that_requires_a_certificate_gets_it() {
    let server = builder().start();
    let once = Once::of(&server);
    cmd!(server.connect(), "CONFIG SET tls-auth-clients yes");
    let [cert, key] = once.authority.sign(&server, "client", "client.example");
    let trusted = ["--cacert", &once.ca];
    let own = ["--cert", &cert, "--key", &key];
    let (well, out) = once.run(&[trusted.as_slice(), &own].concat());
    assert!(well, "{out}");
    let (well, out) = once.run(&trusted);
    assert!(!well, "{out}");
}
