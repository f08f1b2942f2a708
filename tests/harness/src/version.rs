//! Which server it is: some behaviour differs by flavour and version.

use std::fmt;

use crate::conn::Conn;
use crate::value::info;

/// The project a server comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// Redis.
    Redis,
    /// Valkey.
    Valkey,
}

/// A server's flavour and version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version {
    /// The project.
    pub flavour: Flavour,
    /// The version's first number.
    pub major: u32,
    /// The second.
    pub minor: u32,
    /// The third.
    pub patch: u32,
}

impl Version {
    /// Whether this is Redis, of version `major.minor` or later.
    pub fn is_redis_from(self, major: u32, minor: u32) -> bool {
        self.flavour == Flavour::Redis && (self.major, self.minor) >= (major, minor)
    }

    /// Whether this is Valkey, of version `major.minor` or later.
    pub fn is_valkey_from(self, major: u32, minor: u32) -> bool {
        self.flavour == Flavour::Valkey && (self.major, self.minor) >= (major, minor)
    }

    /// Whether this is Valkey, which began at 7.2, or Redis of 7.2 or later.
    pub fn is_7_2_or_later(self) -> bool {
        (self.major, self.minor) >= (7, 2)
    }

    pub(crate) fn ask(conn: &mut Conn) -> Version {
        // Valkey keeps answering redis_version:7.2.4 for clients that look for it.
        let lines = info(&conn.cmd(&["INFO", "server"]));
        let (flavour, numbers) = match lines.get("valkey_version") {
            Some(numbers) => (Flavour::Valkey, numbers),
            None => (Flavour::Redis, &lines["redis_version"]),
        };
        let mut numbers = numbers.split('.').map(|number| {
            number
                .parse()
                .unwrap_or_else(|_| panic!("a version of three numbers, not {lines:?}"))
        });
        let mut next = || numbers.next().unwrap_or(0);
        Version {
            flavour,
            major: next(),
            minor: next(),
            patch: next(),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Version {
            flavour,
            major,
            minor,
            patch,
        } = self;
        write!(f, "{flavour:?} {major}.{minor}.{patch}")
    }
}
