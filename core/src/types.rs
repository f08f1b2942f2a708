//! The words of the contract as types. A value of one of them is within its bounds.

use std::num::{NonZeroU32, NonZeroU64};

/// A moment on the boot-time clock, in milliseconds since the machine started.
///
/// Not a moment of the wall clock: no step of that clock moves an `Instant`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(pub(crate) u64);

impl Instant {
    /// The end of time: later than any moment that comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// `ms` milliseconds after the machine started.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the machine started.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// `ms` milliseconds later; the end of time if that is past it.
    #[must_use]
    pub const fn after(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to here, 0 if `earlier` is later.
    pub const fn millis_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A moment of the wall clock, in microseconds since 1970. Only tokens are made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Micros(pub u64);

/// How long a hold lives without renewal, in milliseconds, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lease(u64);

impl Lease {
    /// A lease of `ms` milliseconds; `None` for 0.
    pub const fn from_millis(ms: u64) -> Option<Self> {
        if ms == 0 { None } else { Some(Self(ms)) }
    }

    /// Milliseconds, at least 1.
    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

/// Shared or exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Shared with other readers.
    Read,
    /// Exclusive.
    Write,
}

/// How a request wants to hold: for writing, alone or together with other keys, or for reading, with or without a limit for
/// all readers together.
///
/// One word, because a queue keeps one for each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sharing(u32);

impl Sharing {
    const WRITE: u32 = 1 << 31;

    /// For reading, if the read counts of all holds then add up to at most `limit`.
    pub const fn within(limit: Count) -> Self {
        Self(limit.get())
    }

    /// For writing, `keys` keys at once: 1 to [`KeyList::MOST`](crate::KeyList::MOST).
    pub const fn several(keys: u8) -> Self {
        Self(Self::WRITE | keys as u32)
    }

    /// The mode.
    pub const fn mode(self) -> Mode {
        match self.0 & Self::WRITE {
            0 => Mode::Read,
            _ => Mode::Write,
        }
    }

    /// How many keys a request takes at once; `None` if it is for one key alone.
    pub const fn keys(self) -> Option<u32> {
        match self.0 & !Self::WRITE {
            0 => None,
            keys if self.0 & Self::WRITE != 0 => Some(keys),
            _ => None,
        }
    }

    /// What the read counts of all holds may add up to; `None` for no limit.
    pub const fn limit(self) -> Option<Count> {
        Count::new(self.0)
    }
}

impl From<Mode> for Sharing {
    /// Without a limit.
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Read => Self(0),
            Mode::Write => Self(Self::WRITE),
        }
    }
}

/// A fencing token: 1 to 2^53 − 1, so that a double holds it exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(NonZeroU64);

impl Token {
    /// The largest token, 2^53 − 1.
    pub const MAX: Self = Self(NonZeroU64::new((1 << 53) - 1).unwrap());

    /// The token `value`; `None` unless it is 1 to 2^53 − 1.
    pub const fn new(value: u64) -> Option<Self> {
        match NonZeroU64::new(value) {
            Some(number) if value <= Self::MAX.get() => Some(Self(number)),
            _ => None,
        }
    }

    /// Its number, 1 to 2^53 − 1.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

/// How often one owner holds one mode: 1 to 2^31 − 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(NonZeroU32);

impl Count {
    /// The largest count, 2^31 − 1.
    pub const MAX: Self = Self(NonZeroU32::new((1 << 31) - 1).unwrap());
    /// Held once.
    pub const ONE: Self = Self(NonZeroU32::MIN);

    /// The count `value`; `None` unless it is 1 to 2^31 − 1.
    pub const fn new(value: u32) -> Option<Self> {
        match NonZeroU32::new(value) {
            Some(number) if value <= Self::MAX.get() => Some(Self(number)),
            _ => None,
        }
    }

    /// Its number, 1 to 2^31 − 1.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}
