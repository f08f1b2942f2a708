//! What an acquisition may have left behind, and how it is undone.
//!
//! A release is written behind the acquire *on the same connection*. If the acquire was granted, the release runs next.
//! If it still waits, the release cannot run, and closing the connection takes the waiter out of the queue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::Cmd;

use crate::acquire::Request;
use crate::clock::BootInstant;
use crate::error::Error;
use crate::link::Link;
use crate::node::Node;
use crate::sync::lock;
use crate::trace;
use crate::wire;

/// How long a release behind a request that may be waiting is given to be answered before the connection is closed.
const PATIENCE: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_millis(250);

/// The requests that may have been granted, or wait, without that being known or wanted.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    /// It is of a hold that goes on, and that renewals keep with all that is left of this.
    is_part: bool,
    traces: Mutex<Vec<Trace>>,
    /// Something had to be undone: what a server knows a hold by may have changed and changed back.
    undid: AtomicBool,
    /// The undoing that no server has answered yet, on the connection of what it undoes.
    late: Arc<Mutex<Vec<Arc<Late>>>>,
    /// A server has refused what would have made the grants of a majority one.
    refused: Mutex<Option<Error>>,
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
    /// `is_part` of a hold that is there already.
    pub(crate) fn of(is_part: bool) -> Trail {
        Trail {
            is_part,
            ..Trail::default()
        }
    }

    /// A request is about to be sent to a server.
    pub(crate) fn leave(&self, node: usize, owner: &Arc<[u8]>, link: &Link, waits: bool) {
        lock(&self.traces).push(Trace {
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
        if let Some(last) = lock(&self.traces)
            .iter_mut()
            .rfind(|trace| trace.node == node)
        {
            last.answered = true;
        }
    }

    /// The last request to a server was to enter a hold again, and has made a new one.
    pub(crate) fn made_anew(&self, node: usize) {
        if let Some(last) = lock(&self.traces)
            .iter_mut()
            .rfind(|trace| trace.node == node)
        {
            last.anew = true;
        }
    }

    /// The last request to a server was answered, and nothing is left of it.
    pub(crate) fn clear(&self, node: usize) {
        let mut traces = lock(&self.traces);
        if let Some(last) = traces.iter().rposition(|trace| trace.node == node) {
            traces.remove(last);
        }
    }

    /// The last request to a server has failed: nothing is left of it if the server has said so, of one whose connection has
    /// failed nobody knows.
    pub(crate) fn clear_if_answered(&self, node: usize, error: &Error) {
        if !matches!(error, Error::Connection { .. }) {
            self.clear(node);
        }
    }

    /// Nothing is left behind, and nothing ever was.
    pub(crate) fn is_clean(&self) -> bool {
        !self.undid.load(Ordering::Relaxed) && lock(&self.traces).is_empty()
    }

    /// The connection on which a server has not answered. Not one to wait on: closing that is what takes the waiter out of
    /// the queue.
    pub(crate) fn unanswered(&self, node: usize) -> Option<Link> {
        let traces = lock(&self.traces);
        let last = traces.iter().rfind(|trace| trace.node == node)?;
        (!last.answered && !last.waits).then(|| last.link.clone())
    }

    /// Whether an undo under this name may still reach a server: it would hit what is asked for now.
    pub(crate) fn may_be_late(&self, node: usize, owner: &Arc<[u8]>) -> bool {
        let late = lock(&self.late);
        late.iter().any(|late| late.is(node, owner))
    }

    /// Another name is used from now on.
    pub(crate) fn forget_late(&self) {
        lock(&self.late).clear();
    }

    pub(crate) fn note_refused(&self, error: Error) {
        *lock(&self.refused) = Some(error);
    }

    pub(crate) fn take_refused(&self) -> Option<Error> {
        lock(&self.refused).take()
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
        let (undone, kept) = std::mem::take(&mut *lock(&self.traces))
            .into_iter()
            .partition(|trace| which(trace.node));
        *lock(&self.traces) = kept;
        let undone: Vec<Trace> = undone;
        if !undone.is_empty() {
            self.undid.store(true, Ordering::Relaxed);
        }
        let undoing = undone.into_iter().filter_map(|trace| {
            // Who has not answered the request will not answer its release either: that goes on by itself.
            let silent = request.core.is_quorum() && !trace.answered && !trace.waits;
            let late = Arc::new(Late {
                node: trace.node,
                owner: trace.owner.clone(),
            });
            let late_ones = self.late.clone();
            lock(&late_ones).push(late.clone());
            let undo = Undo::of(request, trace, holds, self.is_part);
            let undoing = request.core.runtime.spawn(async move {
                if undo.run().await {
                    lock(&late_ones).retain(|other| !Arc::ptr_eq(other, &late));
                }
            });
            (!silent).then_some(undoing)
        });
        futures_util::future::join_all(undoing).await;
    }
}

/// What undoes something on a server, under a name.
#[derive(Debug)]
struct Late {
    node: usize,
    owner: Arc<[u8]>,
}

impl Late {
    fn is(&self, node: usize, owner: &Arc<[u8]>) -> bool {
        self.node == node && Arc::ptr_eq(&self.owner, owner)
    }
}

/// The undoing of one request.
struct Undo {
    node: Arc<Node>,
    key: Arc<[u8]>,
    cmd: Cmd,
    trace: Trace,
    /// How long it is tried again.
    insist: Duration,
    /// See [`Trail`].
    is_part: bool,
    /// The owner may ask for the key again under the same name: what is late would hit that.
    returns: bool,
}

impl Undo {
    fn of(request: &Request, trace: Trace, holds: u32, is_part: bool) -> Undo {
        let who = (&*request.key, &*trace.owner);
        let left = if trace.anew { 0 } else { holds };
        Undo {
            node: request.core.nodes[trace.node].clone(),
            key: request.key.clone(),
            cmd: wire::release(who, request.terms.mode, left, None),
            // Where other servers make do without this one, the lease may end what cannot be released.
            insist: match request.core.is_quorum() {
                true => Duration::ZERO,
                false => request.terms.lease.duration(),
            },
            is_part,
            // Of a hold that goes on, requests go behind what is late.
            returns: request.slot.name_returns(&request.core) && !is_part,
            trace,
        }
    }

    /// True if a server has answered it, and nothing of it can come later.
    async fn run(self) -> bool {
        let Undo {
            node,
            cmd,
            trace,
            insist,
            ..
        } = self;
        let waits = trace.waits;
        let limit = if waits {
            PATIENCE
        } else {
            node.config().response_timeout
        };
        let mut late = None;
        match trace.link.ask(&cmd, limit).await {
            Ok(_) => {
                node.note_silent(false);
                return true;
            }
            // Closed here: it waits, and goes with its connection. But its grant may have been lost there.
            Err(error) if waits && error.is_timeout() && !self.is_part => return false,
            Err(error) if !waits && error.is_timeout() => late = Some(trace.link.clone()),
            Err(_) => {}
        }
        drop(trace);
        let delivered = say(&node, &self.key, &cmd, insist).await;
        let Some(link) = late else { return delivered };
        if !self.returns {
            return false;
        }
        link.settle(&self.key).await;
        // Whatever has become of the first one.
        say(&node, &self.key, &cmd, insist).await
    }
}

/// Says it until it is answered, for so long. False if it is not.
async fn say(node: &Arc<Node>, key: &[u8], cmd: &Cmd, insist: Duration) -> bool {
    let until = BootInstant::now() + insist;
    loop {
        match node.ask(cmd).await {
            Ok(_) => return true,
            Err(error) if BootInstant::now() >= until => {
                trace::abandoned(node.name(), key, &error);
                return false;
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
