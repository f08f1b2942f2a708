//! The bytes of a lock and of an effect.
//!
//! One format serves RDB, DUMP, effects and the AOF: its number, a stamp that says when and where
//! the bytes were written, and holds. Numbers are LEB128 varints. Decoders trust nothing: bytes
//! that are cut short, too long, newer, or that describe a lock that cannot be (a writer beside
//! other owners, an owner twice, a zero count) are refused whole.
//!
//! **Time.** A deadline on one machine's boot-time clock means nothing on another, and the wall
//! clocks of two machines may be hours apart. So a stamp carries the boot id, the machine, the
//! boot-time clock and the wall clock of the writer, a hold carries what was left of its lease, and
//! [`Arrival`] decides which of these the reader may trust.
//!
//! **The format's number** is 1. Bytes of a format with a higher number are refused.

mod reader;
mod stamp;

pub use reader::{DecodeError, Heartbeat};
pub use stamp::{Arrival, BootId, MachineId, Stamp};

use reader::{FORMAT, MAX_MILLIS, Reader};

use crate::admission::compatible;
use crate::lock::Lock;
use crate::owner::OwnerRef;
use crate::stake::Stake;
use crate::types::{Instant, Mode};

/// One fact about one lock, decided by a primary, as replicas and the AOF get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect<'a> {
    /// `owner` holds with `stake`; other holds stay unless they contradict it.
    Put(OwnerRef<'a>, Stake),
    /// `owner` holds with `stake`, and nobody else does.
    Sole(OwnerRef<'a>, Stake),
    /// `owner` holds nothing any more.
    Drop(OwnerRef<'a>),
    /// Nobody holds any more.
    Free,
    /// Nothing but the token clock.
    Clock,
    /// See [`Heartbeat`].
    Heartbeat(Heartbeat),
}

/// Appends the bytes of `lock` and of the token clock's `last` to `out`.
pub fn encode_lock(lock: &Lock, last: u64, stamp: &Stamp, out: &mut Vec<u8>) {
    out.push(FORMAT);
    put_stamp(out, stamp);
    put_number(out, last);
    put_number(out, lock.len() as u64);
    for (owner, stake) in lock.holds() {
        put_hold(out, owner.as_ref(), &stake, stamp.boot);
    }
}

/// The lock that `bytes` describe and the `last` token of the server that wrote them.
///
/// # Errors
/// [`DecodeError`] for anything but the bytes of a lock that is held.
pub fn decode_lock(
    bytes: &[u8],
    arrival: Arrival,
    here: &Stamp,
) -> Result<(Lock, u64), DecodeError> {
    let mut input = Reader::of_format(bytes)?;
    let written = input.stamp()?;
    let last = input.last_token()?;
    let len = input.number(u64::from(u32::MAX))?;
    let mut lock = Lock::free();
    let mut previous: Option<(OwnerRef<'_>, Mode)> = None;
    for _ in 0..len {
        let (owner, stake) = input.hold(arrival, &written, here)?;
        // The encoder writes owners in ascending order: if they do not ascend, one stands twice or the bytes are forged.
        let fits =
            previous.is_none_or(|(before, mode)| before < owner && compatible(mode, stake.mode()));
        if !fits {
            return Err(DecodeError::Impossible);
        }
        previous = Some((owner, stake.mode()));
        lock.put(owner, stake);
    }
    input.end()?;
    if lock.is_free() {
        Err(DecodeError::Impossible)
    } else {
        Ok((lock, last))
    }
}

/// Appends the bytes of `effect` and of the token clock's `last` to `out`.
pub fn encode_effect(effect: &Effect<'_>, last: u64, stamp: &Stamp, out: &mut Vec<u8>) {
    out.push(FORMAT);
    put_number(out, last);
    match effect {
        Effect::Put(owner, stake) | Effect::Sole(owner, stake) => {
            out.push(if matches!(effect, Effect::Put(..)) {
                b'P'
            } else {
                b'S'
            });
            put_stamp(out, stamp);
            put_hold(out, *owner, stake, stamp.boot);
        }
        Effect::Drop(owner) => {
            out.push(b'D');
            put_bytes(out, &owner.text());
        }
        Effect::Free => out.push(b'F'),
        Effect::Clock => out.push(b'C'),
        Effect::Heartbeat(heartbeat) => {
            out.push(b'H');
            put_stamp(out, stamp);
            put_number(out, heartbeat.suspect_ms.min(MAX_MILLIS));
            let acknowledged = heartbeat.acknowledged_ms.map_or(0, |ms| ms + 1);
            put_number(out, acknowledged.min(MAX_MILLIS));
        }
    }
}

/// The effect in `bytes`, with its deadline on the clock of `here`, and the `last` token of the server that wrote them.
///
/// # Errors
/// [`DecodeError`] for anything but the bytes of an effect.
pub fn decode_effect<'a>(
    bytes: &'a [u8],
    arrival: Arrival,
    here: &Stamp,
) -> Result<(Effect<'a>, u64), DecodeError> {
    let mut input = Reader::of_format(bytes)?;
    let last = input.last_token()?;
    let effect = match input.byte()? {
        kind @ (b'P' | b'S') => {
            let written = input.stamp()?;
            let (owner, stake) = input.hold(arrival, &written, here)?;
            if kind == b'P' {
                Effect::Put(owner, stake)
            } else {
                Effect::Sole(owner, stake)
            }
        }
        b'D' => Effect::Drop(input.owner()?),
        b'F' => Effect::Free,
        b'C' => Effect::Clock,
        b'H' => {
            let written = input.stamp()?;
            let suspect_ms = input.number(MAX_MILLIS)?;
            Effect::Heartbeat(Heartbeat {
                suspect_ms: arrival.left(suspect_ms, &written, here),
                // 0 stands for none.
                acknowledged_ms: input.number(MAX_MILLIS)?.checked_sub(1),
            })
        }
        _ => return Err(DecodeError::OutOfBounds),
    };
    input.end()?;
    Ok((effect, last))
}

/// When and where the bytes of a lock were written; `None` if they cannot be read.
pub fn stamp_of_lock(bytes: &[u8]) -> Option<Stamp> {
    let stamp = Reader::of_format(bytes).ok()?.stamp();
    stamp.ok()
}

/// When and where the bytes of an effect were written; `None` if unknown.
pub fn stamp_of_effect(bytes: &[u8]) -> Option<Stamp> {
    let mut input = Reader::of_format(bytes).ok()?;
    input.last_token().ok()?;
    if !matches!(input.byte().ok()?, b'P' | b'S' | b'H') {
        return None;
    }
    input.stamp().ok()
}

fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_stamp(out: &mut Vec<u8>, stamp: &Stamp) {
    out.extend_from_slice(&stamp.boot_id.0);
    let machine = stamp.machine.map_or(0, |machine| machine.0.get());
    out.extend_from_slice(&machine.to_be_bytes());
    put_number(out, stamp.boot.as_millis());
    put_number(out, stamp.wall_ms);
}

fn put_hold(out: &mut Vec<u8>, owner: OwnerRef<'_>, stake: &Stake, now: Instant) {
    put_bytes(out, &owner.text());
    put_number(out, u64::from(stake.write));
    put_number(out, u64::from(stake.read));
    put_number(out, stake.token.get());
    put_number(out, stake.deadline.millis_since(now).min(MAX_MILLIS));
    put_number(out, now.millis_since(stake.since).min(MAX_MILLIS));
    out.push(u8::from(stake.revoked));
}
