//! Effects that a test makes up, in the bytes that `core/src/codec.rs` describes. (The harness does without the core, so that a change there
//! rebuilds no tests of servers.)

use std::time::Duration;

use crate::clock::{boot_id, boot_millis};
use crate::{Server, cmd};

/// What a primary replicates.
#[derive(Debug, Clone, Copy)]
pub enum Effect<'a> {
    /// The owner alone holds, to write, for so many milliseconds from the arrival on.
    Hold {
        /// Up to 127 bytes.
        owner: &'a str,
        /// The hold's token.
        token: u64,
        /// In milliseconds.
        lease: u64,
    },
    /// The primary shows that it is there.
    Heartbeat {
        /// How old the last heartbeat is that all replicas have acknowledged, in milliseconds.
        acknowledged: Option<u64>,
    },
}

impl Effect<'_> {
    fn bytes(self, boot_millis: u64) -> Vec<u8> {
        // The format, and no last token.
        let mut bytes = vec![1, 0];
        bytes.push(match self {
            Effect::Hold { .. } => b'S',
            Effect::Heartbeat { .. } => b'H',
        });
        bytes.extend(boot_id());
        // An unknown machine, and its wall clock.
        bytes.extend([0; 8]);
        put_number(&mut bytes, boot_millis);
        put_number(&mut bytes, 0);
        match self {
            Effect::Hold {
                owner,
                token,
                lease,
            } => {
                put_number(&mut bytes, owner.len() as u64);
                bytes.extend(owner.as_bytes());
                // To write once, not to read; held for no time yet; not revoked.
                for number in [1, 0, token, lease, 0, 0] {
                    put_number(&mut bytes, number);
                }
            }
            Effect::Heartbeat { acknowledged } => {
                put_number(&mut bytes, 0);
                put_number(&mut bytes, acknowledged.map_or(0, |ms| ms + 1));
            }
        }
        bytes
    }
}

/// Appends a number as the module writes numbers: seven bits to a byte, the lowest first, and the eighth set where more follow.
pub fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

impl Server {
    /// Replicates an effect that seems to have been on its way for so long. [`Self::load_actor`] comes first.
    ///
    /// # Panics
    /// If the server refuses.
    #[track_caller]
    pub fn replicate_late(&self, key: &str, effect: Effect<'_>, late: Duration) {
        let late = u64::try_from(late.as_millis()).expect("a short time");
        let bytes = effect.bytes(boot_millis() - late);
        cmd!(self.connect(), "ACTOR.REPLICATE", key, bytes);
    }
}
