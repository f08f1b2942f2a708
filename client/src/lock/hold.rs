//! What every hold is, on one server or over several: something with a token and a deadline, which guards share.

use std::any::Any;
use std::collections::BTreeMap;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::net::Alarm;
use crate::value::{BootInstant, Error, Lease, Loss, Mode, Token};
use crate::wire::Name;

/// A lock that is held; several guards may share it.
pub(crate) trait Hold: Send + Sync {
    fn name(&self) -> &Name;

    /// How the servers have it.
    fn mode(&self) -> Mode;

    fn token(&self) -> Token;

    /// Until when it may be believed in.
    fn deadline(&self) -> BootInstant;

    /// Why it is lost, if it is by now.
    fn loss(&self) -> Option<Loss>;

    /// One more guard shares it. An error once it is lost.
    fn share(&self, share: Share, cap: Option<BootInstant>) -> Result<(), Error>;

    /// A guard gives its share back; with the last one the lock is released. What is left to do is sent at once, and goes on
    /// if the future is dropped.
    fn unshare(self: Arc<Self>, share: Share) -> BoxFuture<'static, Result<(), Error>>;

    /// Renews it now, by its own lease or another.
    fn renew(&self, lease: Option<Lease>) -> BoxFuture<'_, Result<(), Error>>;

    /// Wakes it once the hold is lost; an error if it is lost already.
    fn watch(&self, id: &mut Option<u64>, waker: &Waker) -> Result<BootInstant, Loss>;

    fn unwatch(&self, id: u64);

    /// How long an answer of a server may take.
    #[cfg_attr(
        not(feature = "blocking"),
        allow(dead_code, reason = "only the drop of a blocking guard asks for it")
    )]
    fn answer_limit(&self) -> Duration;

    /// The hold's own type, if it is on one server. Otherwise an error that says why this is not possible.
    fn on_one_server(self: Arc<Self>) -> Result<Arc<dyn Any + Send + Sync>, Error>;
}

/// A guard's share of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) mode: Mode,
    /// It wants the hold to be renewed.
    pub(crate) renews: bool,
}

/// How many guards share a hold.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    pub(crate) guards: u32,
    /// Of these, the guards that write, and those that want it renewed.
    pub(crate) writers: u32,
    pub(crate) renewing: u32,
}

impl Shares {
    pub(crate) fn add(&mut self, share: Share) {
        self.guards += 1;
        self.writers += u32::from(share.mode == Mode::Write);
        self.renewing += u32::from(share.renews);
    }

    pub(crate) fn remove(&mut self, share: Share) {
        self.guards -= 1;
        self.writers -= u32::from(share.mode == Mode::Write);
        self.renewing -= u32::from(share.renews);
    }
}

/// The tasks that are woken when a hold is lost.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    by_id: BTreeMap<u64, Waker>,
    added: u64,
}

impl Watchers {
    pub(crate) fn add(&mut self, id: &mut Option<u64>, waker: &Waker) {
        let id = *id.get_or_insert_with(|| {
            self.added += 1;
            self.added
        });
        self.by_id.insert(id, waker.clone());
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Waker> {
        self.by_id.remove(&id)
    }

    pub(crate) fn take(&mut self) -> impl Iterator<Item = Waker> + use<> {
        mem::take(&mut self.by_id).into_values()
    }
}

/// Resolves with the reason once a hold is lost, on whatever runtime. Dropped, it leaves nothing behind.
pub(crate) struct Lost {
    hold: Arc<dyn Hold>,
    watch: Option<u64>,
    /// The runtime that renews the hold may not run, so the deadline is watched without it, too.
    alarm: Option<Alarm>,
}

impl Lost {
    pub(crate) fn of(hold: Arc<dyn Hold>) -> Lost {
        Lost {
            hold,
            watch: None,
            alarm: None,
        }
    }
}

impl Future for Lost {
    type Output = Loss;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Loss> {
        let lost = &mut *self;
        let deadline = match lost.hold.watch(&mut lost.watch, context.waker()) {
            Ok(deadline) => deadline,
            Err(loss) => return Poll::Ready(loss),
        };
        lost.alarm = None;
        lost.alarm = Some(Alarm::at(deadline, context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Lost {
    fn drop(&mut self) {
        if let Some(id) = self.watch {
            self.hold.unwatch(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_several_tasks_is_woken_once() {
        let (mut watchers, mut ids) = (Watchers::default(), [None; 3]);
        for _ in 0..2 {
            for id in &mut ids {
                watchers.add(id, Waker::noop());
            }
        }
        let [first, ..] = ids;
        assert!(watchers.remove(first.expect("it was added")).is_some());
        assert_eq!(watchers.take().count(), 2);
        assert_eq!(watchers.take().count(), 0);
    }

    #[test]
    fn guards_are_counted_by_what_they_want() {
        let of = |mode, renews| Share { mode, renews };
        let mut shares = Shares::default();
        let counts = |it: &Shares| [it.guards, it.writers, it.renewing];
        for (share, expected) in [
            (of(Mode::Write, true), [1, 1, 1]),
            (of(Mode::Write, false), [2, 2, 1]),
            (of(Mode::Read, true), [3, 2, 2]),
        ] {
            shares.add(share);
            assert_eq!(counts(&shares), expected);
        }
        for (share, expected) in [
            (of(Mode::Write, true), [2, 1, 1]),
            (of(Mode::Read, true), [1, 1, 0]),
            (of(Mode::Write, false), [0, 0, 0]),
        ] {
            shares.remove(share);
            assert_eq!(counts(&shares), expected);
        }
    }
}
