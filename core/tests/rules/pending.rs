//! Requests that are about to wait.

use mortise_core::{Busy, Instant, KeyId, Lock, Owner, PendingKey, PendingRequest, Terms};

/// A request for one key, behind all and without a limit.
pub(crate) fn for_one(
    key: &KeyId,
    owner: Owner,
    terms: Terms,
    held: Lock,
    since: Instant,
) -> PendingRequest {
    for_several([(key.clone(), held)], owner, terms, since)
}

/// A request for these keys, held like this. None is ready.
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
