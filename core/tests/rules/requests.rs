//! Requests as most clients make them.

use mortise_core::{
    Busy, Instant, KeyId, Lease, Lock, Micros, Owner, OwnerRef, PendingKey, PendingRequest,
    Request, Sharing, Terms,
};

pub(crate) const NOW: Instant = Instant::from_millis(1_000_000);
pub(crate) const WALL: Micros = Micros(1_700_000_000_000_000);

pub(crate) fn owner(name: &[u8]) -> OwnerRef<'_> {
    OwnerRef::new(name).expect("1 to 255 bytes")
}

/// An owner with this name.
pub(crate) fn named(name: &str) -> Owner {
    owner(name.as_bytes()).to_owner()
}

/// For one more hold with a lease of `ms` milliseconds.
pub(crate) fn terms(sharing: impl Into<Sharing>, ms: u64) -> Terms {
    Terms {
        sharing: sharing.into(),
        lease: Lease::from_millis(ms).expect("at least 1"),
        holds: None,
        fence: None,
        token: None,
        client: 0,
    }
}

/// Of `name`, for one more hold with a lease of `ms` milliseconds.
pub(crate) fn request(name: &[u8], sharing: impl Into<Sharing>, ms: u64) -> Request<'_> {
    Request {
        owner: owner(name),
        terms: Terms {
            client: 7,
            ..terms(sharing, ms)
        },
    }
}

/// A request for one key that is about to wait, behind all and without a limit.
pub(crate) fn for_one(
    key: &KeyId,
    owner: Owner,
    terms: Terms,
    held: Lock,
    since: Instant,
) -> PendingRequest {
    for_several([(key.clone(), held)], owner, terms, since)
}

/// The same for these keys, held like this. None is ready.
pub(crate) fn for_several(
    keys: impl IntoIterator<Item = (KeyId, Lock)>,
    owner: Owner,
    terms: Terms,
    since: Instant,
) -> PendingRequest {
    let key = |(key, held)| PendingKey { key, held };
    PendingRequest {
        keys: keys.into_iter().map(key).collect(),
        owner,
        terms,
        busy: Busy::Held,
        since,
        until: Instant::NEVER,
    }
}
