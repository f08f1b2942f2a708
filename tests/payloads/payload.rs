//! Payloads of DUMP built by hand, so that any part can be wrong while the checksum is right.

/// A lock in format 1: a stamp, the token clock, and holds.
#[derive(Debug, Clone)]
pub(crate) struct Payload {
    pub(crate) version: u8,
    pub(crate) boot_id: [u8; 16],
    pub(crate) boot_ms: u64,
    pub(crate) wall_ms: u64,
    pub(crate) last: u64,
    /// How many holds are said to follow.
    pub(crate) said: u64,
    pub(crate) holds: Vec<Hold>,
    /// What follows the last hold.
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
}

impl Payload {
    pub(crate) fn of(holds: Vec<Hold>) -> Payload {
        Payload {
            version: 1,
            boot_id: *b"0123456789abcdef",
            boot_ms: 1_000,
            wall_ms: 1_700_000_000_000,
            last: 5_000,
            said: holds.len() as u64,
            holds,
            tail: Vec::new(),
        }
    }

    /// A payload that differs from a good one in what `change` does to it.
    pub(crate) fn but(mut self, change: impl FnOnce(&mut Payload)) -> Payload {
        change(&mut self);
        self
    }

    /// The module's own bytes, without the server's around them.
    pub(crate) fn body(&self) -> Vec<u8> {
        let mut body = vec![self.version];
        body.extend(self.boot_id);
        for number in [self.boot_ms, self.wall_ms, self.last, self.said] {
            put_number(&mut body, number);
        }
        for hold in &self.holds {
            put_number(&mut body, hold.owner.len() as u64);
            body.extend(&hold.owner);
            for number in [hold.write, hold.read, hold.token, hold.left, hold.held] {
                put_number(&mut body, number);
            }
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
        }
    }

    pub(crate) fn reader(owner: &str) -> Hold {
        Hold {
            write: 0,
            read: 1,
            ..Hold::writer(owner)
        }
    }

    /// A hold that differs from a good one in what `change` does to it.
    pub(crate) fn but(mut self, change: impl FnOnce(&mut Hold)) -> Hold {
        change(&mut self);
        self
    }
}

/// Seven bits a byte, the lowest first.
fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// What the server puts around a module's bytes: the type, the module's id, a string, an end, a version and a checksum.
#[derive(Debug, Clone)]
pub(crate) struct Envelope {
    /// The type, and the module's id with the encoding's number in its ten lowest bits.
    pub(crate) head: Vec<u8>,
    /// The version of the server's format.
    version: [u8; 2],
}

/// One byte for the type; the module's id is a length in the server's 64-bit form.
const HEAD: usize = 1 + 9;
/// The version and the checksum.
pub(crate) const FOOT: usize = 2 + 8;
/// A string follows.
const STRING: u8 = 5;
/// The module's value ends here.
const END: u8 = 0;

impl Envelope {
    /// The envelope of a real dump, of a server that does not compress.
    pub(crate) fn of(dump: &[u8]) -> Envelope {
        Envelope {
            head: dump[..HEAD].to_vec(),
            version: dump[dump.len() - FOOT..][..2]
                .try_into()
                .expect("two bytes"),
        }
    }

    /// The module's bytes in a dump.
    pub(crate) fn open(&self, dump: &[u8]) -> Vec<u8> {
        let inner = &dump[HEAD..dump.len() - FOOT];
        let (opcode, rest) = inner.split_first().expect("an opcode");
        assert_eq!((*opcode, inner[inner.len() - 1]), (STRING, END));
        // The length takes one byte below 64 and two below 16384.
        let skip = if rest[0] & 0xc0 == 0 { 1 } else { 2 };
        rest[skip..rest.len() - 1].to_vec()
    }

    /// A dump whose module's bytes are `body`.
    pub(crate) fn around(&self, body: &[u8]) -> Vec<u8> {
        let mut inner = vec![STRING];
        put_length(&mut inner, body.len());
        inner.extend(body);
        inner.push(END);
        self.around_all(&inner)
    }

    /// A dump with anything behind the module's id.
    pub(crate) fn around_all(&self, inner: &[u8]) -> Vec<u8> {
        let mut dump = self.head.clone();
        dump.extend(inner);
        dump.extend(self.version);
        let sum = crc64(&dump);
        dump.extend(sum.to_le_bytes());
        dump
    }
}

fn put_length(out: &mut Vec<u8>, len: usize) {
    match len {
        0..64 => out.push(len as u8),
        64..16_384 => out.extend([0x40 | (len >> 8) as u8, len as u8]),
        _ => {
            out.push(0x80);
            out.extend((len as u32).to_be_bytes());
        }
    }
}

/// CRC-64 as Redis computes it: Jones' polynomial, reflected, from zero.
fn crc64(bytes: &[u8]) -> u64 {
    const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
    bytes.iter().fold(0, |mut crc, byte| {
        crc ^= u64::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ POLYNOMIAL
            } else {
                crc >> 1
            };
        }
        crc
    })
}
