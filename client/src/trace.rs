//! Events of background tasks for `tracing`; nothing without that feature.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

use crate::error::{Error, Loss};
#[cfg(feature = "tracing")]
use crate::name::text;
use crate::token::Token;

/// Reports something from a background task, which must go on even if the application's subscriber panics.
#[cfg(feature = "tracing")]
fn report(event: impl FnOnce()) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(event));
}

/// A hold has ended: as its holder wanted, or lost.
pub(crate) fn ended(key: &[u8], token: Token, loss: Loss) {
    #[cfg(feature = "tracing")]
    report(|| match loss {
        Loss::Released => tracing::debug!(key = %text(key), %token, "lock released"),
        Loss::Passed => tracing::debug!(key = %text(key), %token, "lock passed on"),
        _ => tracing::warn!(key = %text(key), %token, %loss, "lock lost"),
    });
}

pub(crate) fn renewal_failed(server: &str, key: &[u8], error: &Error) {
    #[cfg(feature = "tracing")]
    report(
        || tracing::warn!(server, key = %text(key), %error, "renewal failed; it will be tried again"),
    );
}

/// A release was given up.
pub(crate) fn abandoned(server: &str, key: &[u8], error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(server, key = %text(key), %error, "a release could not be delivered; the lease will end the hold");
}
