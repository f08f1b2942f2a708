//! Events for `tracing`, and nothing without that feature.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

use std::time::Duration;

use crate::value::{Error, Loss, Mode, Token};

#[cfg(feature = "tracing")]
fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

pub(crate) fn granted(key: &[u8], mode: Mode, token: Token, waited: Duration) {
    #[cfg(feature = "tracing")]
    tracing::debug!(key = %text(key), %mode, %token, ?waited, "lock granted");
}

pub(crate) fn refused(key: &[u8], mode: Mode, error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::debug!(key = %text(key), %mode, %error, "lock not granted");
}

pub(crate) fn ended(key: &[u8], token: Token, loss: Loss) {
    #[cfg(feature = "tracing")]
    match loss {
        Loss::Released => tracing::debug!(key = %text(key), %token, "lock released"),
        _ => tracing::warn!(key = %text(key), %token, %loss, "lock lost"),
    }
}

pub(crate) fn renewal_failed(server: &str, holds: usize, error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(server, holds, %error, "renewal failed; it will be tried again");
}

pub(crate) fn abandoned(server: &str, key: &[u8], error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(server, key = %text(key), %error, "a release could not be delivered; the lease will end the hold");
}
