//! The bytes of a lock and of an effect.
//!
//! One format serves RDB, DUMP, effects and the AOF: a version, a stamp that says when and where
//! the bytes were written, and holds. Numbers are LEB128 varints. Decoders trust nothing: bytes
//! that are cut short, too long, newer, or that describe a lock that cannot be (a writer beside
//! other owners, an owner twice, a zero count) are refused whole.
//!
//! **Time.** A deadline on one machine's boot-time clock means nothing on another, and the wall
//! clocks of two machines may be hours apart. So a stamp carries the boot id, the machine, the
//! boot-time clock and the wall clock of the writer, a hold carries what was left of its lease, and
//! [`Arrival`] says which of these the reader may trust. Version 1 did not tell the machine.

mod reader;

use std::fmt;
use std::num::NonZeroU64;

use crate::lock::Lock;
use crate::owner::OwnerRef;
use crate::stake::Stake;
use crate::types::Instant;

use reader::Reader;

/// The version written. Older ones are read for ever; newer ones are refused.
pub const VERSION: u8 = 2;

/// Which boot of which machine: the kernel's boot id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BootId(pub [u8; 16]);

/// Which machine, across its boots: a number that no other machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineId(pub NonZeroU64);

/// When and where bytes were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The machine and boot.
    pub boot_id: BootId,
    /// The machine whose wall clock it is; `None` where that cannot be told.
    pub machine: Option<MachineId>,
    /// Its boot-time clock.
    pub boot: Instant,
    /// Its wall clock, milliseconds since 1970.
    pub wall_ms: u64,
}

/// How the bytes reached the reader, and so what tells how much of a lease is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Straight from a live server (effect on a replica, full sync, RESTORE, slot import): the
    /// remaining time counts from receipt, so that skewed clocks cannot shorten a lease.
    Live,
    /// From a file, after a pause of unknown length: by the boot-time clock if this is the same
    /// boot, by the wall clock if it is the same machine, else as from a live server; and never
    /// more than remained. A file may have come from a primary on another machine.
    File,
    /// From a file of what is, or may be, a replica, in which another machine's stamps are to be
    /// expected: the same, but the wall clock is not trusted at all.
    ReplicaFile,
}

impl Arrival {
    /// How much of `remaining` milliseconds is left `here`, of bytes stamped `written`.
    fn left(self, remaining: u64, written: &Written, here: &Stamp) -> u64 {
        let stamp = &written.stamp;
        let passed = match self {
            Self::Live => 0,
            _ if stamp.boot_id == here.boot_id => here.boot.millis_since(stamp.boot),
            Self::File if written.shows_clock_of(here) => {
                here.wall_ms.saturating_sub(stamp.wall_ms)
            }
            Self::File | Self::ReplicaFile => 0,
        };
        remaining.saturating_sub(passed)
    }
}

/// A stamp as it was read.
struct Written {
    stamp: Stamp,
    /// It is of a version that tells the machine, or that it cannot.
    tells_machine: bool,
}

impl Written {
    /// Its wall clock is the one `here`. What does not tell is believed to be from here.
    fn shows_clock_of(&self, here: &Stamp) -> bool {
        !self.tells_machine || (here.machine.is_some() && self.stamp.machine == here.machine)
    }
}

/// Why bytes were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Written by a newer version.
    Newer(u8),
    /// They end too early.
    Short,
    /// Something follows the end.
    Long,
    /// A number or a length is out of its bounds.
    OutOfBounds,
    /// The holds could not stand beside each other.
    Impossible,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer(version) => write!(f, "written by a newer version ({version} > {VERSION})"),
            Self::Short => f.write_str("cut short"),
            Self::Long => f.write_str("bytes after the end"),
            Self::OutOfBounds => f.write_str("a number or length out of its bounds"),
            Self::Impossible => f.write_str("holds that cannot stand beside each other"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// One fact about one lock, decided by a primary, as replicas and the AOF get it.
#[derive(Clone, Copy, Debug)]
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

/// What a primary tells its replicas again and again, so that they know how late its data is, and it how late its
/// replicas are. In an AOF it stands only for the sake of `suspect_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// How long from now on it suspects holds that its own predecessor may have ended, in milliseconds.
    pub suspect_ms: u64,
    /// How old the last heartbeat is that every replica of its has acknowledged, in milliseconds; `None` if one has not
    /// acknowledged any.
    pub acknowledged_ms: Option<u64>,
}

/// A decoded [`Effect`], with its deadline on the reader's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact<'a> {
    /// See [`Effect::Put`].
    Put(OwnerRef<'a>, Stake),
    /// See [`Effect::Sole`].
    Sole(OwnerRef<'a>, Stake),
    /// See [`Effect::Drop`].
    Drop(OwnerRef<'a>),
    /// See [`Effect::Free`].
    Free,
    /// See [`Effect::Clock`].
    Clock,
    /// See [`Effect::Heartbeat`].
    Heartbeat(Heartbeat),
}

/// A number that bounds every duration read: 2^53 ms.
const MAX_MILLIS: u64 = 1 << 53;

/// Appends the bytes of `lock` and of the token clock's `last` to `out`.
pub fn encode_lock(lock: &Lock, last: u64, stamp: &Stamp, out: &mut Vec<u8>) {
    out.push(VERSION);
    put_stamp(out, stamp);
    put_number(out, last);
    put_number(out, lock.len() as u64);
    for (owner, stake) in lock.holds() {
        put_hold(out, owner.as_ref(), &stake, stamp.boot);
    }
}

/// The lock that `bytes` describe and the `last` token of whoever wrote them.
///
/// # Errors
/// [`DecodeError`] for anything but the bytes of a lock that somebody holds.
pub fn decode_lock(
    bytes: &[u8],
    arrival: Arrival,
    here: &Stamp,
) -> Result<(Lock, u64), DecodeError> {
    let mut input = Reader::versioned(bytes)?;
    let written = input.stamp()?;
    let last = input.last_token()?;
    let len = input.number(u64::from(u32::MAX))?;
    let mut lock = Lock::free();
    let mut previous: Option<OwnerRef<'_>> = None;
    for _ in 0..len {
        let (owner, stake) = input.hold(arrival, &written, here)?;
        // Owners are written in ascending order: what does not ascend stands twice or was made up.
        let ascends = previous.is_none_or(|previous| previous < owner);
        if !ascends || (len > 1 && stake.write > 0) {
            return Err(DecodeError::Impossible);
        }
        previous = Some(owner);
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
    out.push(VERSION);
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

/// The fact that `bytes` tell and the `last` token of whoever wrote them.
///
/// # Errors
/// [`DecodeError`] for anything but the bytes of an effect.
pub fn decode_effect<'a>(
    bytes: &'a [u8],
    arrival: Arrival,
    here: &Stamp,
) -> Result<(Fact<'a>, u64), DecodeError> {
    let mut input = Reader::versioned(bytes)?;
    let last = input.last_token()?;
    let fact = match input.byte()? {
        kind @ (b'P' | b'S') => {
            let written = input.stamp()?;
            let (owner, stake) = input.hold(arrival, &written, here)?;
            if kind == b'P' {
                Fact::Put(owner, stake)
            } else {
                Fact::Sole(owner, stake)
            }
        }
        b'D' => Fact::Drop(input.owner()?),
        b'F' => Fact::Free,
        b'C' => Fact::Clock,
        b'H' => {
            let written = input.stamp()?;
            let Heartbeat {
                suspect_ms,
                acknowledged_ms,
            } = input.heartbeat()?;
            Fact::Heartbeat(Heartbeat {
                suspect_ms: arrival.left(suspect_ms, &written, here),
                acknowledged_ms,
            })
        }
        _ => return Err(DecodeError::OutOfBounds),
    };
    input.end()?;
    Ok((fact, last))
}

/// When and where the bytes of a lock were written; `None` if they cannot be read.
pub fn stamp_of_lock(bytes: &[u8]) -> Option<Stamp> {
    let stamp = Reader::versioned(bytes).ok()?.stamp();
    stamp.ok().map(|written| written.stamp)
}

/// When and where the bytes of an effect were written; `None` if they do not tell.
pub fn stamp_of_effect(bytes: &[u8]) -> Option<Stamp> {
    let mut input = Reader::versioned(bytes).ok()?;
    input.last_token().ok()?;
    if !matches!(input.byte().ok()?, b'P' | b'S' | b'H') {
        return None;
    }
    input.stamp().ok().map(|written| written.stamp)
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
}
