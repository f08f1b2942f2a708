//! Over TLS.

use mortise_harness::{Server, cmd};

use crate::probe::Exporter;
use crate::tls_server::Tls;

/// More options for the exporter. A handshake of a build without optimisation takes long on a busy machine.
const PATIENT: [&str; 2] = ["--timeout", "20"];

#[test]
fn a_server_is_queried_over_tls_if_its_certificate_is_trusted() {
    let server = Server::start();
    cmd!(server.connect(), "LOCK.ACQUIRE", "key", "a", 60_000);
    let tls = Tls::of(&server);
    let address = format!("rediss://127.0.0.1:{}", tls.port);
    let args = [&["--server", &*address], &PATIENT[..]].concat();
    let trusting = Exporter::with(&[&args[..], &["--cacert", &tls.ca]].concat());
    let samples = trusting.scrape();
    let label = format!("server=\"127.0.0.1:{}\"", tls.port);
    assert_eq!(samples.of("mortise_locks", &label), 1.0);
    let doubting = Exporter::with(&args);
    assert_eq!(doubting.scrape().one("mortise_up"), 0.0);
    // Prometheus may name it in this form, too.
    let args = [
        &["--allow-target", "127.0.0.1:*", "--cacert", &tls.ca],
        &PATIENT[..],
    ]
    .concat();
    let path = format!("/scrape?target={address}");
    assert_eq!(Exporter::with(&args).samples(&path).one("mortise_up"), 1.0);
}

#[test]
fn a_server_that_requires_a_certificate_gets_it() {
    let server = Server::start();
    let tls = Tls::of(&server);
    tls.want_certificates(&server);
    let address = format!("rediss://127.0.0.1:{}", tls.port);
    let args = [&["--server", &*address, "--cacert", &tls.ca], &PATIENT[..]].concat();
    let own = ["--cert", &tls.client_cert, "--key", &tls.client_key];
    let known = Exporter::with(&[&args[..], &own].concat());
    assert_eq!(known.scrape().one("mortise_up"), 1.0);
    let nobody = Exporter::with(&args);
    assert_eq!(nobody.scrape().one("mortise_up"), 0.0);
}
