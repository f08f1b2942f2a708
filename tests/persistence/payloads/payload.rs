//! The module's own bytes in a DUMP built by hand, so that any part can be wrong.

use mortise_harness::put_number;

/// A lock: the number of the format, a stamp, the token clock, and holds.
#[derive(Debug, Clone)]
pub(crate) struct Payload {
    pub(crate) format: u8,
    pub(crate) boot_id: [u8; 16],
    pub(crate) machine: [u8; 8],
    pub(crate) boot_ms: u64,
    pub(crate) wall_ms: u64,
    pub(crate) last: u64,
    /// The stated number of holds.
    pub(crate) said: u64,
    pub(crate) holds: Vec<Hold>,
    /// Bytes after the last hold.
    pub(crate) tail: Vec<u8>,
}

#[derive(Debug, Clone)]
pub(crate) struct Hold {
    pub(crate) owner: Vec<u8>,
    pub(crate) write: u64,
    pub(crate) read: u64,
    pub(crate) token: u64,
    /// Milliseconds left.
    pub(crate) left: u64,
    /// Milliseconds since the first grant.
    pub(crate) held: u64,
    /// 1 if it is revoked, 0 if not.
    pub(crate) mark: u8,
}

impl Payload {
    pub(crate) fn of(holds: Vec<Hold>) -> Payload {
        Payload {
            format: 1,
            boot_id: *b"0123456789abcdef",
            machine: *b"01234567",
            boot_ms: 1_000,
            wall_ms: 1_700_000_000_000,
            last: 5_000,
            said: holds.len() as u64,
            holds,
            tail: Vec::new(),
        }
    }

    /// A valid payload with `change` applied.
    pub(crate) fn but(mut self, change: impl FnOnce(&mut Payload)) -> Payload {
        change(&mut self);
        self
    }

    /// The module's own bytes, without the server's envelope.
    pub(crate) fn body(&self) -> Vec<u8> {
        let mut body = vec![self.format];
        body.extend(self.boot_id);
        body.extend(self.machine);
        for number in [self.boot_ms, self.wall_ms, self.last, self.said] {
            put_number(&mut body, number);
        }
        for hold in &self.holds {
            put_number(&mut body, hold.owner.len() as u64);
            body.extend(&hold.owner);
            for number in [hold.write, hold.read, hold.token, hold.left, hold.held] {
                put_number(&mut body, number);
            }
            body.push(hold.mark);
        }
        body.extend(&self.tail);
        body
    }
}

impl Hold {
    pub(crate) fn writer(owner: &str) -> Hold {
        Hold {
            owner: owner.as_bytes().to_vec(),
            write: 1,
            read: 0,
            token: 4_000,
            left: 60_000,
            held: 10,
            mark: 0,
        }
    }

    pub(crate) fn reader(owner: &str) -> Hold {
        Hold {
            write: 0,
            read: 1,
            ..Hold::writer(owner)
        }
    }

    /// A valid hold with `change` applied.
    pub(crate) fn but(mut self, change: impl FnOnce(&mut Hold)) -> Hold {
        change(&mut self);
        self
    }
}
