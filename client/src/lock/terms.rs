//! On what terms a lock is taken, and from what.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::lock::Guard;
use crate::value::{Error, Lease, Mode, Names, Token};
use crate::wire::command::Permits;

/// What locks are taken from: one server, here.
pub(crate) trait Source: fmt::Debug + Send + Sync {
    /// An error if nothing can be taken from it any more.
    fn check_open(&self) -> Result<(), Error>;

    /// Names for acquisitions that name no owner.
    fn names(&self) -> &Names;

    /// Takes a lock under names that nobody has had.
    fn take<'a>(
        self: Arc<Self>,
        names: &'a Names,
        terms: &'a Terms,
        mode: Mode,
    ) -> BoxFuture<'a, Result<Guard, Error>>;
}

/// What is asked for, but for the mode and the owner.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) key: Arc<[u8]>,
    /// All keys, if they are several: `key` is the first.
    pub(crate) keys: Option<Arc<[Arc<[u8]>]>>,
    pub(crate) lease: Duration,
    /// How long to wait for others to leave: zero is not at all, and nothing without limit.
    pub(crate) wait: Option<Duration>,
    pub(crate) renews: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Duration,
    pub(crate) permits: Option<Permits>,
    /// It is passed on from another name.
    pub(crate) passed: Option<Passed>,
}

/// A hold that was passed on to a name, which nobody works under.
#[derive(Debug, Clone)]
pub(crate) struct Passed {
    pub(crate) owner: Arc<[u8]>,
    pub(crate) token: Token,
}

impl Terms {
    pub(crate) fn new(key: &[u8]) -> Terms {
        Terms {
            key: key.into(),
            keys: None,
            lease: Lease::DEFAULT,
            wait: None,
            renews: true,
            max_hold: None,
            at_least: Duration::ZERO,
            permits: None,
            passed: None,
        }
    }
}
