//! Requests as most clients make them.

use mortise_core::{Instant, Lease, Micros, OwnerRef, Request, Sharing, Terms};

pub(crate) const NOW: Instant = Instant::from_millis(1_000_000);
pub(crate) const WALL: Micros = Micros(1_700_000_000_000_000);

pub(crate) fn owner(name: &[u8]) -> OwnerRef<'_> {
    OwnerRef::new(name).expect("1 to 255 bytes")
}

/// Of `name`, for one more hold with a lease of `ms` milliseconds.
pub(crate) fn request(name: &[u8], sharing: impl Into<Sharing>, ms: u64) -> Request<'_> {
    Request {
        owner: owner(name),
        terms: Terms {
            sharing: sharing.into(),
            lease: Lease::from_millis(ms).expect("at least 1"),
            holds: None,
            fence: None,
            token: None,
            client: 7,
        },
    }
}
