//! What TLS needs before the first connection: cryptography, and the certificates of the command line.

use redis::{ClientTlsConfig, TlsCertificates};

/// Gives TLS its cryptography; to be called before the first connection.
pub(crate) fn bring_cryptography() {
    // There may be one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The certificates to trust instead of the system's, the certificate to show, and its key: the contents of the files of `--cacert`,
/// `--cert` and `--key`. `None` where none was named.
///
/// # Errors
/// If a certificate comes without its key, or the other way round.
pub(crate) fn certificates(
    [root_cert, client_cert, client_key]: [Option<Vec<u8>>; 3],
) -> Result<Option<TlsCertificates>, String> {
    let client_tls = match (client_cert, client_key) {
        (Some(client_cert), Some(client_key)) => Some(ClientTlsConfig {
            client_cert,
            client_key,
        }),
        (None, None) => None,
        _ => return Err("--cert and --key go together".to_owned()),
    };
    let any = root_cert.is_some() || client_tls.is_some();
    Ok(any.then_some(TlsCertificates {
        client_tls,
        root_cert,
    }))
}
