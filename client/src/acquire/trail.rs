//! What an acquisition may have left behind, and how it is undone.
//!
//! A release is written behind the acquire *on the same connection*. If the acquire was granted, the release runs next.
//! If it still waits, the release cannot run, and closing the connection takes the waiter out of the queue.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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
}

#[derive(Debug)]
struct Trace {
    node: usize,
    link: Link,
    /// The request may be waiting in the server's queue.
    waits: bool,
}

impl Trail {
    /// A request is about to be sent to a server.
    pub(crate) fn leave(&self, node: usize, link: &Link, waits: bool) {
        self.lock().push(Trace {
            node,
            link: link.clone(),
            waits,
        });
    }

    /// The last request to a server was answered, and nothing is left of it.
    pub(crate) fn clear(&self, node: usize) {
        let mut traces = self.lock();
        if let Some(last) = traces.iter().rposition(|trace| trace.node == node) {
            traces.remove(last);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Releases down to `holds` whatever was asked for, on all servers at once.
    pub(crate) async fn undo(&self, request: &Request, holds: u32) {
        let traces = std::mem::take(&mut *self.lock());
        let undoing = traces.into_iter().map(|trace| undo(request, holds, trace));
        futures_util::future::join_all(undoing).await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Trace>> {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn undo(request: &Request, holds: u32, trace: Trace) {
    let node: &Arc<Node> = &request.core.nodes[trace.node];
    let cmd = wire::release(request.who(), request.terms.mode, holds, None);
    let limit = if trace.waits {
        PATIENCE
    } else {
        node.config().response_timeout
    };
    let waits = trace.waits;
    match trace.link.ask(&cmd, limit).await {
        Ok(_) => return,
        // Closed here: it waits, and goes with its connection.
        Err(error) if waits && error.is_timeout() => return,
        Err(_) => {}
    }
    drop(trace);
    let until = BootInstant::now() + request.terms.lease.duration();
    loop {
        match node.ask(&cmd).await {
            Ok(_) => return,
            Err(error) if BootInstant::now() >= until => {
                trace::abandoned(node.name(), &request.key, &error);
                return;
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
