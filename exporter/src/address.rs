//! Where a server or a Sentinel is: `host:port`, with TLS or without.

use redis::{ConnectionInfo, IntoConnectionInfo, RedisResult};

/// With TLS, and without.
const SCHEMES: [&str; 2] = ["rediss", "redis"];

/// An address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    scheme: &'static str,
    /// `host:port`, as metrics name it.
    pub(crate) name: String,
}

impl Address {
    /// Reads `host:port`, or that as a URL.
    ///
    /// # Errors
    /// Why it is no address.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (scheme, name) = text.split_once("://").unwrap_or(("redis", text));
        let name = name.trim_end_matches('/');
        // There may be a password in it: it is not repeated.
        if let Some((_, host)) = name.rsplit_once('@') {
            return Err(format!(
                "'…@{host}' is not host:port; user and password are given by options, not in an address"
            ));
        }
        let known = SCHEMES.into_iter().find(|known| *known == scheme);
        let (Some(scheme), false) = (known, name.is_empty() || name.contains(['/', '?', '#']))
        else {
            return Err(format!(
                "'{text}' is not host:port, redis://host:port or rediss://host:port"
            ));
        };
        let address = Self {
            scheme,
            name: name.to_owned(),
        };
        match address.info() {
            Ok(_) => Ok(address),
            Err(why) => Err(format!("'{text}' is not an address: {why}")),
        }
    }

    /// Another address, with TLS or without like this one.
    pub(crate) fn sibling(&self, host: &str, port: &str) -> Self {
        let name = if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
        Self {
            scheme: self.scheme,
            name,
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.scheme == "rediss"
    }

    /// The host, without its port.
    pub(crate) fn host(&self) -> &str {
        let host = self
            .name
            .rsplit_once(':')
            .map_or(&*self.name, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }

    pub(crate) fn info(&self) -> RedisResult<ConnectionInfo> {
        format!("{}://{}/", self.scheme, self.name).into_connection_info()
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn an_address_is_a_host_with_a_port_and_no_password() {
        for (text, name) in [
            ("a:1", "a:1"),
            ("redis://a:1/", "a:1"),
            ("rediss://[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(Address::parse(text).unwrap().name, name);
        }
        for text in ["", "a:x", "http://a:1", "redis://a:1/3", "unix:///a"] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
        let error = Address::parse("redis://me:secret@a:1").unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn other_nodes_are_reached_like_the_one_that_named_them() {
        let address = Address::parse("rediss://a:1").unwrap();
        let other = address.sibling("::1", "7");
        assert_eq!((&*other.name, other.host()), ("[::1]:7", "::1"));
        assert!(other.is_tls());
    }
}
