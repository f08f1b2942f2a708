//! What an acquisition may have left behind, and how it is undone.
//!
//! A release is written behind the acquire *on the same connection*. If the acquire was granted, the release runs next.
//! If it still waits, the release cannot run, and closing the connection takes the waiter out of the queue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Cmd;

use crate::acquire::Request;
use crate::clock::BootInstant;
use crate::link::Link;
use crate::node::Node;
use crate::trace;
use crate::wire;

/// How long a release behind a request that may be waiting is given to be answered before the connection is closed.
const PATIENCE: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_millis(250);

/// The requests that may have been granted, or wait, without that being known or wanted.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    traces: Mutex<Vec<Trace>>,
    /// Something had to be undone: what a server knows a hold by may have changed and changed back.
    undid: AtomicBool,
}

#[derive(Debug)]
struct Trace {
    node: usize,
    owner: Arc<[u8]>,
    link: Link,
    /// The request may be waiting in the server's queue.
    waits: bool,
    answered: bool,
    /// What it was to add to was gone: all that there is now is of this request.
    anew: bool,
}

impl Trail {
    /// A request is about to be sent to a server.
    pub(crate) fn leave(&self, node: usize, owner: &Arc<[u8]>, link: &Link, waits: bool) {
        self.lock().push(Trace {
            node,
            owner: owner.clone(),
            link: link.clone(),
            waits,
            answered: false,
            anew: false,
        });
    }

    /// The last request to a server was granted: what it left behind is known.
    pub(crate) fn answered(&self, node: usize) {
        if let Some(last) = self.lock().iter_mut().rfind(|trace| trace.node == node) {
            last.answered = true;
        }
    }

    /// The last request to a server was to enter a hold again, and has made a new one.
    pub(crate) fn made_anew(&self, node: usize) {
        if let Some(last) = self.lock().iter_mut().rfind(|trace| trace.node == node) {
            last.anew = true;
        }
    }

    /// The last request to a server was answered, and nothing is left of it.
    pub(crate) fn clear(&self, node: usize) {
        let mut traces = self.lock();
        if let Some(last) = traces.iter().rposition(|trace| trace.node == node) {
            traces.remove(last);
        }
    }

    /// Nothing is left behind, and nothing ever was.
    pub(crate) fn is_clean(&self) -> bool {
        !self.undid.load(Ordering::Relaxed) && self.lock().is_empty()
    }

    /// The connection on which a server has not answered. Not one to wait on: closing that is what takes the waiter out of
    /// the queue.
    pub(crate) fn unanswered(&self, node: usize) -> Option<Link> {
        let traces = self.lock();
        let last = traces.iter().rfind(|trace| trace.node == node)?;
        (!last.answered && !last.waits).then(|| last.link.clone())
    }

    /// Releases down to `holds` whatever was asked for, on all servers at once; whole holds that were made anew.
    pub(crate) async fn undo(&self, request: &Request, holds: u32) {
        self.undo_where(request, holds, |_| true).await;
    }

    /// Like [`Trail::undo`], on some servers only. Dropped half-way, what is left to undo goes on by itself.
    pub(crate) async fn undo_where(
        &self,
        request: &Request,
        holds: u32,
        which: impl Fn(usize) -> bool,
    ) {
        let (undone, kept) = std::mem::take(&mut *self.lock())
            .into_iter()
            .partition(|trace| which(trace.node));
        *self.lock() = kept;
        let undone: Vec<Trace> = undone;
        if !undone.is_empty() {
            self.undid.store(true, Ordering::Relaxed);
        }
        let undoing = undone.into_iter().filter_map(|trace| {
            // Who has not answered the request will not answer its release either: that goes on by itself.
            let silent = request.core.is_quorum() && !trace.answered && !trace.waits;
            let node = request.core.nodes[trace.node].clone();
            let who = (&*request.key, &*trace.owner);
            let holds = if trace.anew { 0 } else { holds };
            let cmd = wire::release(who, request.terms.mode, holds, None);
            // Where other servers make do without this one, the lease may end what cannot be released.
            let insist = (!request.core.is_quorum()).then(|| request.terms.lease.duration());
            let key = request.key.clone();
            let runtime = &request.core.runtime;
            let undoing =
                runtime.spawn(async move { undo(&node, &key, &cmd, trace, insist).await });
            (!silent).then_some(undoing)
        });
        futures_util::future::join_all(undoing).await;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Trace>> {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn undo(node: &Arc<Node>, key: &[u8], cmd: &Cmd, trace: Trace, insist: Option<Duration>) {
    let waits = trace.waits;
    let limit = if waits {
        PATIENCE
    } else {
        node.config().response_timeout
    };
    match trace.link.ask(cmd, limit).await {
        Ok(_) => return,
        // Closed here: it waits, and goes with its connection.
        Err(error) if waits && error.is_timeout() => return,
        Err(_) => {}
    }
    drop(trace);
    let until = BootInstant::now() + insist.unwrap_or_default();
    loop {
        match node.ask(cmd).await {
            Ok(_) => return,
            Err(error) if BootInstant::now() >= until => {
                trace::abandoned(node.name(), key, &error);
                return;
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
