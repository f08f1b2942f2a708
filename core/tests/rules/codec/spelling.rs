//! The format spelled out by hand, without the codec: what golden and hostile bytes are made from.

use std::num::NonZeroU64;

use mortise_core::codec::{BootId, MachineId, Stamp};
use mortise_core::{Instant, Lock, Mode, OwnerRef, Stake, Token, Touched};

pub(crate) const BOOT_ID: [u8; 16] =
    *b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f";

/// The bytes 10 to 17.
pub(crate) const MACHINE: u64 = 0x0a0b_0c0d_0e0f_1011;

/// Where and when all samples are written.
pub(crate) const WRITTEN: Stamp = Stamp {
    boot_id: BootId(BOOT_ID),
    machine: machine(MACHINE),
    boot: Instant::from_millis(1_000_000),
    wall_ms: 1_700_000_000_000,
};

pub(crate) const fn machine(number: u64) -> Option<MachineId> {
    match NonZeroU64::new(number) {
        Some(number) => Some(MachineId(number)),
        None => None,
    }
}

/// A hold as encoded: times are relative to the stamp.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spelled<'a> {
    pub(crate) owner: &'a [u8],
    pub(crate) write: u64,
    pub(crate) read: u64,
    pub(crate) token: u64,
    pub(crate) remaining: u64,
    pub(crate) held: u64,
    pub(crate) revoked: bool,
}

/// A reader with nothing special about it.
pub(crate) const READER: Spelled<'_> = Spelled {
    owner: b"reader",
    write: 0,
    read: 1,
    token: 1_700_000_000_000_001,
    remaining: 30_000,
    held: 5,
    revoked: false,
};

impl Spelled<'_> {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = number(self.owner.len() as u64);
        out.extend(self.owner);
        for value in [self.write, self.read, self.token, self.remaining, self.held] {
            out.extend(number(value));
        }
        out.push(u8::from(self.revoked));
        out
    }

    pub(crate) fn stake(&self) -> Stake {
        Stake {
            write: self.write.try_into().expect("a count"),
            read: self.read.try_into().expect("a count"),
            token: Token::new(self.token).expect("a token"),
            deadline: WRITTEN.boot.after(self.remaining),
            since: Instant::from_millis(WRITTEN.boot.as_millis() - self.held),
            touched: Touched::of_loaded(),
            revoked: self.revoked,
        }
    }
}

/// LEB128: seven bits a byte, the lowest first, the top bit set on all but the last.
pub(crate) fn number(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let low = (value % 128) as u8;
        value /= 128;
        if value == 0 {
            out.push(low);
            return out;
        }
        out.push(low + 128);
    }
}

pub(crate) fn stamp() -> Vec<u8> {
    let times = [WRITTEN.boot.as_millis(), WRITTEN.wall_ms].map(number);
    [&BOOT_ID[..], &MACHINE.to_be_bytes(), &times.concat()].concat()
}

/// A lock: the format's number, stamp, last token, number of holds, holds.
pub(crate) fn lock(last: u64, holds: &[Spelled<'_>]) -> Vec<u8> {
    let mut out = vec![1];
    out.extend(stamp());
    out.extend(number(last));
    out.extend(number(holds.len() as u64));
    for hold in holds {
        out.extend(hold.bytes());
    }
    out
}

/// An effect: the format's number, last token, kind, and what the kind needs.
pub(crate) fn effect(last: u64, kind: u8, rest: &[&[u8]]) -> Vec<u8> {
    let mut out = vec![1];
    out.extend(number(last));
    out.push(kind);
    out.extend(rest.concat());
    out
}

pub(crate) fn owner(bytes: &[u8]) -> OwnerRef<'_> {
    OwnerRef::new(bytes).expect("1 to 255 bytes")
}

pub(crate) fn lock_of(holds: &[(Vec<u8>, Stake)]) -> Lock {
    let mut lock = Lock::free();
    for (name, stake) in holds {
        lock.put(owner(name), *stake);
    }
    lock
}

pub(crate) fn holds_of(lock: &Lock) -> Vec<(Vec<u8>, Stake)> {
    lock.holds()
        .map(|(owner, stake)| (owner.text().to_vec(), stake))
        .collect()
}

/// Checks everything that holds for every lock with a holder.
pub(crate) fn assert_possible(lock: &Lock) {
    let holds = holds_of(lock);
    assert!(!lock.is_free() && !holds.is_empty());
    assert_eq!(lock.len(), holds.len());
    assert!(holds.is_sorted_by(|(a, _), (b, _)| a < b));
    let first = holds.iter().map(|(_, stake)| stake.deadline).min();
    assert_eq!(lock.next_deadline(), first);
    for (name, stake) in &holds {
        assert!((1..=255).contains(&name.len()));
        assert!(stake.total() > 0);
        assert!(stake.write == 0 || holds.len() == 1);
        assert!(stake.count(Mode::Read) < 1 << 31 && stake.count(Mode::Write) < 1 << 31);
        assert_eq!(lock.hold(owner(name)), Some(*stake));
    }
}
