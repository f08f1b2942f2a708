//! Effects: what a primary replicates to its replicas and the AOF.

use crate::owner::OwnerRef;
use crate::stake::Stake;

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
