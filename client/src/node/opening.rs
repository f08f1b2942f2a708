//! The opening of the connection that all share: once for all who ask, and on by itself when they have stopped waiting.

use std::sync::Arc;

use redis::RedisResult;

use super::{Node, Once};
use crate::link::Link;
use crate::sync::lock;

/// A connection and its number.
pub(super) type Opened = RedisResult<(Link, u64)>;

/// The shared connection, numbered so that a report of its failure cannot take down its successor.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) link: Option<Link>,
    /// The next connection, and the number it is to have.
    pub(super) opening: Option<(u64, Once<Opened>)>,
    pub(super) number: u64,
    /// See [`Detour`](super::detour::Detour).
    #[cfg(feature = "cluster")]
    pub(super) seeking: bool,
}

/// The opening of the shared connection with a number.
pub(super) struct Opening(pub(super) Arc<Node>, pub(super) u64);

impl Opening {
    pub(super) async fn run(self) -> Opened {
        let Opening(node, number) = &self;
        let link = node.open().await;
        let mut shared = lock(&node.shared);
        // Otherwise the server has been looked for anew since, and this may be the old one.
        if shared.is_opening(*number) {
            shared.number = *number;
            shared.link = link.as_ref().ok().cloned();
        }
        Ok((link?, *number))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut shared = lock(&self.0.shared);
        if shared.is_opening(self.1) {
            shared.opening = None;
        }
    }
}

impl Shared {
    fn is_opening(&self, number: u64) -> bool {
        self.opening.as_ref().is_some_and(|it| it.0 == number)
    }
}
