//! How `mortise-top` and `mortise-exporter` reach servers: TLS, and the nodes of a cluster.

#![forbid(unsafe_code)]

use redis::{ClientTlsConfig, TlsCertificates};

/// Gives TLS its cryptography; to be called before the first connection.
pub fn bring_cryptography() {
    // There may be one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The certificates to trust instead of the system's, the certificate to show, and its key: the contents of the files of `--cacert`,
/// `--cert` and `--key`. `None` where none was named.
///
/// # Errors
/// If a certificate comes without its key, or the other way round.
pub fn certificates(
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

/// A node of a cluster that has an address.
#[derive(Debug, PartialEq, Eq)]
pub struct Node<'a> {
    /// `None` if it has met no other node yet, and so does not know its own address: use the address at which it was asked.
    pub host: Option<&'a str>,
    /// Its port.
    pub port: &'a str,
    /// It is a primary that owns slots.
    pub has_slots: bool,
}

impl<'a> Node<'a> {
    /// The node in a line of `CLUSTER NODES`, with the name or address to use with TLS or without.
    pub fn parse(line: &'a str, over_tls: bool) -> Option<Node<'a>> {
        let mut fields = line.split(' ').skip(1);
        let (address, flags) = (fields.next()?, fields.next()?);
        let is = |wanted: &str| flags.split(',').any(|flag| flag == wanted);
        if is("handshake") || is("noaddr") {
            return None;
        }
        // `ip:port@bus`, and `,hostname` where one is announced.
        let mut parts = address.split(',');
        let (ip, port) = parts.next()?.split('@').next()?.rsplit_once(':')?;
        // A certificate is for a name.
        let hostname = parts
            .next()
            .filter(|name| over_tls && !name.is_empty() && !name.contains('='));
        Some(Node {
            host: hostname.or(Some(ip).filter(|ip| !ip.is_empty())),
            port,
            // Primary, pings, pongs, epoch and state stand between the flags and the first slots.
            has_slots: is("master") && fields.nth(5).is_some(),
        })
    }
}
