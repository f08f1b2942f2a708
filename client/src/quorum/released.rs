//! What the servers' answers to a release say about the whole.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use crate::quorum::Servers;
use crate::value::{Error, Loss, NodeReason};

/// The releases under way, each with the number of its server.
pub(super) type Releasing = FuturesUnordered<BoxFuture<'static, (usize, Result<(), Error>)>>;

/// Whether a majority had it until its release.
pub(super) async fn count_released(
    servers: Arc<Servers>,
    mut releasing: Releasing,
) -> Result<(), Error> {
    let (all, majority) = (servers.all.len(), servers.majority());
    // Where it is not, there is nothing to be released.
    let (mut held, mut lost, mut unknown) = (0, all - releasing.len(), 0);
    let mut reasons = Vec::new();
    while held < majority && lost <= all - majority {
        match releasing.next().await {
            Some((_, Ok(()))) => held += 1,
            Some((_, Err(Error::Lost(Loss::Unknown)))) => unknown += 1,
            Some((_, Err(Error::Lost(_)))) => lost += 1,
            // It is repeated in the background.
            Some((server, Err(error))) => reasons.push((server, NodeReason::of(error))),
            None if held + unknown >= majority => return Err(Error::Lost(Loss::Unknown)),
            None => return Err(servers.no_quorum(held, reasons)),
        }
    }
    match held >= majority {
        true => Ok(()),
        false => Err(Error::Lost(Loss::Denied)),
    }
}
