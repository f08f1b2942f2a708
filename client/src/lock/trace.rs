//! What is reported to the application: events and spans for `tracing`, counters for `metrics`; nothing without these features.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

use std::time::Duration;

use crate::value::{Error, Loss, Mode, Token};

#[cfg(feature = "tracing")]
fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

#[cfg(feature = "metrics")]
fn count(counter: &'static str) {
    metrics::counter!(counter).increment(1);
}

/// An acquisition, in a span of its own.
pub(crate) fn acquiring<F: Future>(
    key: &[u8],
    mode: Mode,
    acquisition: F,
) -> impl Future<Output = F::Output> + use<F> {
    #[cfg(feature = "tracing")]
    let acquisition = tracing::Instrument::instrument(
        acquisition,
        tracing::debug_span!("acquire lock", key = %text(key), %mode),
    );
    acquisition
}

/// Work under a lock, in a span of its own.
pub(crate) fn working<F: Future>(
    key: &[u8],
    token: Token,
    work: F,
) -> impl Future<Output = F::Output> + use<F> {
    #[cfg(feature = "tracing")]
    let work = tracing::Instrument::instrument(
        work,
        tracing::info_span!("under lock", key = %text(key), %token),
    );
    work
}

pub(crate) fn granted(key: &[u8], mode: Mode, token: Token, waited: Duration) {
    #[cfg(feature = "metrics")]
    count("mortise_client_acquired_total");
    #[cfg(feature = "tracing")]
    tracing::debug!(key = %text(key), %mode, %token, ?waited, "lock granted");
}

/// A request has waited in a queue.
pub(crate) fn waited() {
    #[cfg(feature = "metrics")]
    count("mortise_client_waited_total");
}

pub(crate) fn refused(key: &[u8], mode: Mode, error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::debug!(key = %text(key), %mode, %error, "lock not granted");
}

/// A server has confirmed a renewal.
pub(crate) fn renewed() {
    #[cfg(feature = "metrics")]
    count("mortise_client_renewed_total");
}

pub(crate) fn ended(key: &[u8], token: Token, loss: Loss) {
    #[cfg(feature = "metrics")]
    if !loss.is_intended() {
        count("mortise_client_lost_total");
    }
    #[cfg(feature = "tracing")]
    match loss {
        Loss::Released => tracing::debug!(key = %text(key), %token, "lock released"),
        Loss::Passed => tracing::debug!(key = %text(key), %token, "lock passed on"),
        _ => tracing::warn!(key = %text(key), %token, %loss, "lock lost"),
    }
}

/// One server's part of a hold over several has ended. The lock may still be held.
pub(crate) fn part_ended(server: &str, key: &[u8], loss: Loss) {
    #[cfg(feature = "tracing")]
    tracing::debug!(server, key = %text(key), %loss, "a server's part of a lock ended");
}

pub(crate) fn renewal_failed(server: &str, holds: usize, error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(server, holds, %error, "renewal failed; it will be tried again");
}

pub(crate) fn abandoned(server: &str, key: &[u8], error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(server, key = %text(key), %error, "a release could not be delivered; the lease will end the hold");
}
