//! Reads untrusted bytes.

use std::fmt;
use std::num::NonZeroU64;

use super::stamp::{Arrival, BootId, MachineId, Stamp};
use crate::owner::OwnerRef;
use crate::stake::{Stake, Touched};
use crate::types::{Count, Instant, Token};

/// A number that bounds every duration read: 2^53 ms.
pub(super) const MAX_MILLIS: u64 = 1 << 53;

/// The number of the format, in the first byte.
pub(super) const FORMAT: u8 = 1;

/// Why bytes were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// They are of a newer format, whose number it is.
    Newer(u8),
    /// They end too early.
    Short,
    /// Bytes follow the end.
    Long,
    /// A number or a length is out of its bounds.
    OutOfBounds,
    /// The holds could not stand beside each other.
    Impossible,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer(format) => write!(
                f,
                "written by a newer version of the module (format {format}, this one reads {FORMAT})"
            ),
            Self::Short => f.write_str("cut short"),
            Self::Long => f.write_str("bytes after the end"),
            Self::OutOfBounds => f.write_str("a number or length out of its bounds"),
            Self::Impossible => f.write_str("holds that exclude each other"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// A primary replicates this again and again. Replicas learn from it how late their data is, and the primary learns how late
/// its replicas are. The AOF has it only for `suspect_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// How long from now on it suspects holds that its own predecessor may have ended, in milliseconds.
    pub suspect_ms: u64,
    /// How old the last heartbeat is that every replica of its has acknowledged, in milliseconds; `None` if one has not
    /// acknowledged any.
    pub acknowledged_ms: Option<u64>,
}

/// Reads forward and refuses.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn of_format(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (&format, rest) = bytes.split_first().ok_or(DecodeError::Short)?;
        match format {
            FORMAT => Ok(Self { rest }),
            0 => Err(DecodeError::OutOfBounds),
            newer => Err(DecodeError::Newer(newer)),
        }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self.rest.split_at_checked(len).ok_or(DecodeError::Short)?;
        self.rest = tail;
        Ok(head)
    }

    pub(super) fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take(1)?[0])
    }

    fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::OutOfBounds),
        }
    }

    pub(super) fn number(&mut self, max: u64) -> Result<u64, DecodeError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
                return Err(DecodeError::OutOfBounds);
            }
            value |= bits << shift;
            if byte < 0x80 {
                let fits = value <= max;
                return fits.then_some(value).ok_or(DecodeError::OutOfBounds);
            }
        }
        Err(DecodeError::OutOfBounds)
    }

    pub(super) fn last_token(&mut self) -> Result<u64, DecodeError> {
        self.number(Token::MAX.get())
    }

    pub(super) fn owner(&mut self) -> Result<OwnerRef<'a>, DecodeError> {
        let len = self.number(OwnerRef::MAX_LEN as u64)?;
        OwnerRef::new(self.take(len as usize)?).ok_or(DecodeError::OutOfBounds)
    }

    pub(super) fn stamp(&mut self) -> Result<Stamp, DecodeError> {
        let mut boot_id = BootId::default();
        boot_id.0.copy_from_slice(self.take(16)?);
        let mut machine = [0; 8];
        machine.copy_from_slice(self.take(8)?);
        Ok(Stamp {
            boot_id,
            machine: NonZeroU64::new(u64::from_be_bytes(machine)).map(MachineId),
            boot: Instant::from_millis(self.number(MAX_MILLIS)?),
            wall_ms: self.number(MAX_MILLIS)?,
        })
    }

    pub(super) fn hold(
        &mut self,
        arrival: Arrival,
        written: &Stamp,
        here: &Stamp,
    ) -> Result<(OwnerRef<'a>, Stake), DecodeError> {
        let owner = self.owner()?;
        let max = u64::from(Count::MAX.get());
        let write = self.number(max)? as u32;
        let read = self.number(max)? as u32;
        let token = Token::new(self.last_token()?).ok_or(DecodeError::OutOfBounds)?;
        let remaining = self.number(MAX_MILLIS)?;
        let held = self.number(MAX_MILLIS)?;
        let revoked = self.flag()?;
        if write == 0 && read == 0 {
            return Err(DecodeError::Impossible);
        }
        let left = arrival.left(remaining, written, here);
        let held = held + (remaining - left);
        let stake = Stake {
            write,
            read,
            token,
            deadline: here.boot.after(left),
            since: Instant::from_millis(here.boot.as_millis().saturating_sub(held)),
            touched: Touched::of_loaded(),
            revoked,
        };
        Ok((owner, stake))
    }

    pub(super) fn end(&self) -> Result<(), DecodeError> {
        let is_read = self.rest.is_empty();
        is_read.then_some(()).ok_or(DecodeError::Long)
    }
}
