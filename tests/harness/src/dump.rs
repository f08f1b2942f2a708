//! Takes payloads of DUMP apart and puts them together again, with a correct checksum.

/// What the server puts around a module's bytes: the type, the module's id, a string, an end, a version and a checksum.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// The type, and the module's id with the encoding's number in its ten lowest bits.
    pub head: Vec<u8>,
    /// The version of the server's format.
    version: [u8; 2],
}

/// One byte for the type; the module's id is a length in the server's 64-bit form.
const HEAD: usize = 1 + 9;
/// The version and the checksum.
const FOOT: usize = 2 + 8;
/// A string follows.
const STRING: u8 = 5;
/// The module's value ends here.
const END: u8 = 0;

impl Envelope {
    /// The envelope of a real dump, of a server that does not compress.
    ///
    /// # Panics
    /// If it is too short for a dump.
    pub fn of(dump: &[u8]) -> Envelope {
        Envelope {
            head: dump[..HEAD].to_vec(),
            version: dump[dump.len() - FOOT..][..2]
                .try_into()
                .expect("two bytes"),
        }
    }

    /// All bytes in a dump between the module's id and the version: the module's bytes as the server writes them.
    ///
    /// # Panics
    /// If it is too short for a dump.
    pub fn inner(dump: &[u8]) -> &[u8] {
        &dump[HEAD..dump.len() - FOOT]
    }

    /// The module's own bytes in a dump.
    ///
    /// # Panics
    /// If it holds anything but one string that is not compressed.
    pub fn open(dump: &[u8]) -> Vec<u8> {
        let inner = Envelope::inner(dump);
        let (opcode, rest) = inner.split_first().expect("an opcode");
        assert_eq!((*opcode, inner[inner.len() - 1]), (STRING, END));
        // The length takes one byte below 64, two below 16384, else five.
        let skip = match rest[0] >> 6 {
            0 => 1,
            1 => 2,
            _ => 5,
        };
        rest[skip..rest.len() - 1].to_vec()
    }

    /// A dump whose module's bytes are `body`.
    pub fn around(&self, body: &[u8]) -> Vec<u8> {
        let mut inner = vec![STRING];
        put_length(&mut inner, body.len());
        inner.extend(body);
        inner.push(END);
        self.around_all(&inner)
    }

    /// A dump with any bytes after the module's id.
    pub fn around_all(&self, inner: &[u8]) -> Vec<u8> {
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
