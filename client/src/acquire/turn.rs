//! An owner's turn: one request for a key after the other, and none while a release is on its way that would hit it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, join, select};

use crate::acquire::{Request, Wait};
use crate::clock::BootInstant;
use crate::error::{Error, Loss};
use crate::held::Held;
use crate::hold::Hold;
use crate::owner::Turn;

/// How long even who hardly waits for others waits for requests of their own that are on their way.
const OWN: Duration = Duration::from_millis(10);

/// Waits until nothing else of this owner is going on with this key, and finds what the owner holds.
pub(super) async fn take_turn(
    request: &Request,
    started: BootInstant,
) -> Result<(Turn, Option<Arc<Hold>>), Error> {
    let turn = std::pin::pin!(next_turn(request));
    let (turn, existing) = match select(turn, std::pin::pin!(over(request, started))).await {
        Either::Left((turn, _)) => turn?,
        Either::Right(_) => {
            let waited = started.elapsed();
            return Err(Error::Busy { waited });
        }
    };
    if let Some(hold) = &request.part_of
        && !existing.as_ref().is_some_and(|it| Arc::ptr_eq(it, hold))
    {
        return Err(Error::Lost(hold.loss().unwrap_or(Loss::Expired)));
    }
    Ok((turn, existing))
}

async fn next_turn(request: &Request) -> Result<(Turn, Option<Arc<Hold>>), Error> {
    loop {
        let turn = request.slot.turn().await;
        let existing = turn.upgrade().filter(|hold| hold.loss().is_none());
        let hold = match existing {
            Some(hold) if !request.reentrant => hold,
            existing => return Ok((turn, existing)),
        };
        if !hold.state().is_given_back() {
            return Err(Error::AlreadyHeld);
        }
        // Its release needs the turn first.
        drop(turn);
        let mode = request.terms.mode;
        Held { hold, mode }.lost().await;
    }
}

/// Ends when the wait for the turn is over. Who does not wait for others waits for an answer to their own release.
async fn over(request: &Request, started: BootInstant) {
    match request.wait {
        Wait::No => tokio::time::sleep(request.core.nodes[0].config().response_timeout).await,
        wait => drop(join(tokio::time::sleep(OWN), wait.over(started)).await),
    }
}
