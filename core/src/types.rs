//! The words of the contract as types. A value of one of them is within its bounds.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// A moment on the boot-time clock, in milliseconds since the machine started.
///
/// Not a moment of the wall clock: no step of that clock moves an `Instant`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
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

/// A fencing token: 1 to 2^53 − 1, so that a double holds it exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// The largest token, 2^53 − 1.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// The token `value`; `None` unless it is 1 to 2^53 − 1.
    pub const fn new(value: u64) -> Option<Self> {
        if value == 0 || value > Self::MAX.0 {
            None
        } else {
            Some(Self(value))
        }
    }

    /// Its number, 1 to 2^53 − 1.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// How often one owner holds one mode: 1 to 2^31 − 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(u32);

impl Count {
    /// The largest count, 2^31 − 1.
    pub const MAX: Self = Self((1 << 31) - 1);
    /// Held once.
    pub const ONE: Self = Self(1);

    /// The count `value`; `None` unless it is 1 to 2^31 − 1.
    pub const fn new(value: u32) -> Option<Self> {
        if value == 0 || value > Self::MAX.0 {
            None
        } else {
            Some(Self(value))
        }
    }

    /// Its number, 1 to 2^31 − 1.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A borrowed owner: 1 to 255 bytes, any bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerRef<'a>(&'a [u8]);

impl<'a> OwnerRef<'a> {
    /// The longest owner, in bytes.
    pub const MAX_LEN: usize = 255;

    /// The owner `bytes`; `None` if empty or longer than [`Self::MAX_LEN`].
    pub const fn new(bytes: &'a [u8]) -> Option<Self> {
        if bytes.is_empty() || bytes.len() > Self::MAX_LEN {
            None
        } else {
            Some(Self(bytes))
        }
    }

    /// 1 to 255 bytes.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// A copy of its own.
    pub fn to_owner(self) -> Owner {
        let mut bytes = [0; Owner::INLINE];
        match bytes.get_mut(..self.0.len()) {
            Some(room) => {
                room.copy_from_slice(self.0);
                // At most INLINE bytes, so the length fits.
                Owner(Repr::Inline {
                    len: self.0.len() as u8,
                    bytes,
                })
            }
            None => Owner(Repr::Heap(self.0.into())),
        }
    }
}

impl fmt::Debug for OwnerRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// An owner: 1 to 255 bytes, any bytes. Up to 46 of them, which is a UUID and ten more, live in
/// the value itself: the common lock needs no allocation for its owner.
#[derive(Clone)]
pub struct Owner(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; Owner::INLINE] },
    Heap(Box<[u8]>),
}

impl Owner {
    const INLINE: usize = 46;

    /// 1 to 255 bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Heap(bytes) => bytes,
        }
    }

    /// Borrowed.
    pub fn as_ref(&self) -> OwnerRef<'_> {
        OwnerRef(self.as_bytes())
    }

    /// Bytes it has allocated outside itself.
    pub fn heap_size(&self) -> usize {
        match &self.0 {
            Repr::Inline { .. } => 0,
            Repr::Heap(bytes) => bytes.len(),
        }
    }
}

impl Borrow<[u8]> for Owner {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Owner {}

impl PartialOrd for Owner {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By bytes.
impl Ord for Owner {
    fn cmp(&self, other: &Self) -> Ordering {
        // The first eight bytes of two UUIDs differ, and comparing them as one number is several
        // times faster than comparing slices. Behind a short owner there are zeros, so that two
        // numbers that differ order as the bytes do.
        if let (Repr::Inline { bytes: a, .. }, Repr::Inline { bytes: b, .. }) = (&self.0, &other.0)
            && let (Some(a), Some(b)) = (a.first_chunk(), b.first_chunk())
        {
            let (a, b) = (u64::from_be_bytes(*a), u64::from_be_bytes(*b));
            if a != b {
                return a.cmp(&b);
            }
        }
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Owner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}
