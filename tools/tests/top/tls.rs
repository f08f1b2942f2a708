//! Over TLS.

use std::process::Command;

use mortise_harness::{cmd, queue};

use crate::tls_server::Tls;
use crate::{TOP, builder};

#[test]
fn a_server_is_watched_over_tls_if_its_certificate_is_trusted() {
    let server = builder().start();
    let mut a = server.connect();
    let tls = Tls::of(&server);
    cmd!(a, "LOCK.ACQUIRE", "stock:42", "alice", 600_000);
    queue!(a, "box", "LOCK.ACQUIRE", "stock:42", "bob", 1000);
    let url = format!("rediss://127.0.0.1:{}/", tls.port);
    let once = |trusted: &[&str]| {
        // A handshake takes long on a busy machine, where nothing is optimized.
        let args = [&["--once", "--timeout", "20", &*url], trusted].concat();
        let out = Command::new(TOP).args(args).output().unwrap();
        (out.status.success(), String::from_utf8(out.stdout).unwrap())
    };
    let (well, out) = once(&["--cacert", &tls.ca]);
    assert!(well && out.contains("alice"), "{out}");
    let (well, out) = once(&[]);
    assert!(!well && out.contains("certificate"), "{out}");
}

#[test]
fn a_server_that_requires_a_certificate_gets_it() {
    let server = builder().start();
    let tls = Tls::of(&server);
    tls.want_certificates(&server);
    let url = format!("rediss://127.0.0.1:{}/", tls.port);
    let once = |own: &[&str]| {
        let trusted = ["--once", "--timeout", "20", &*url, "--cacert", &tls.ca];
        let args = [&trusted, own].concat();
        Command::new(TOP).args(args).output().unwrap()
    };
    let out = once(&["--cert", &tls.client_cert, "--key", &tls.client_key]);
    assert!(out.status.success(), "{out:?}");
    let out = once(&[]);
    assert!(!out.status.success(), "{out:?}");
}
