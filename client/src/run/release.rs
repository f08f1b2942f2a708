//! Giving a lock back. What is not answered is said again by the upkeep, whoever waits for it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::proto::reply::Reply;
use crate::run::change;
use crate::run::core::Core;
use crate::run::hold::Hold;
use crate::run::upkeep::Leave;
use crate::value::error::{Error, NodeFailure, NodeReason};
use crate::value::mode::Mode;
use crate::value::released::Released;

/// What a guard has of a hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) mode: Mode,
    pub(crate) renews: bool,
}

/// What is left when a guard is gone.
enum Left {
    Nothing,
    /// Readers, of what the servers have for a writer.
    Readers,
    Guards,
}

fn take_part(hold: &Hold, part: Part) -> Left {
    hold.with(|state| {
        state.guards -= 1;
        state.renewing -= u32::from(part.renews).min(state.renewing);
        if part.mode == Mode::Write {
            state.writers -= 1;
        }
        match (state.guards, state.writers) {
            (0, _) => Left::Nothing,
            (_, 0) if state.wire.write && part.mode == Mode::Write => Left::Readers,
            _ => Left::Guards,
        }
    })
}

/// Gives a guard's part back without waiting for it.
pub(crate) fn drop_part(hold: &Arc<Hold>, part: Part) {
    match take_part(hold, part) {
        Left::Nothing => hold.give_back(),
        Left::Readers => drop(change::downgrade(hold)),
        Left::Guards => {}
    }
}

/// Gives a guard's part back, and says what became of it.
pub(crate) async fn release(hold: Arc<Hold>, part: Part) -> Result<Released, Error> {
    match take_part(&hold, part) {
        Left::Nothing => {}
        Left::Readers => {
            let changed = change::downgrade(&hold).await;
            return match hold.loss() {
                Some(_) => Ok(Released::Lost),
                None => changed.map(|()| Released::Held),
            };
        }
        Left::Guards => {
            return Ok(match hold.loss() {
                Some(_) => Released::Lost,
                None => Released::Held,
            });
        }
    }
    let leaves = hold.send_release();
    if leaves.is_empty() {
        return Ok(Released::Lost);
    }
    let mut saying = Saying::new(&hold.core, leaves);
    poll_fn(|context| saying.poll(context)).await
}

/// Releases that are on their way; what is not answered when this is dropped is left to the upkeep.
struct Saying<'a> {
    core: &'a Core,
    leaves: Vec<(Leave, State)>,
    held: usize,
    lost: usize,
    unknown: usize,
}

#[derive(Debug)]
enum State {
    Sent,
    /// Its connection broke: sent once more.
    Repeated,
    Answered,
    Failed(Error),
}

impl Saying<'_> {
    fn new(core: &Core, leaves: Vec<Leave>) -> Saying<'_> {
        Saying {
            core,
            // Where it is not, there is nothing to be released.
            lost: core.servers.len() - leaves.len(),
            leaves: leaves.into_iter().map(|it| (it, State::Sent)).collect(),
            held: 0,
            unknown: 0,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Released, Error>> {
        for (leave, state) in &mut self.leaves {
            while matches!(state, State::Sent | State::Repeated) {
                let Poll::Ready(answer) = leave.poll(context) else {
                    break;
                };
                let repeated = matches!(state, State::Repeated) || leave.late;
                match answer {
                    // Any number left, or one that was left: it was held until now.
                    Ok(Reply::Int(1..)) if repeated => self.held += 1,
                    Ok(Reply::Int(_)) if !repeated => self.held += 1,
                    Ok(_) if repeated => self.unknown += 1,
                    Ok(_) => self.lost += 1,
                    Err(Error::Connection { error, .. }) if !error.is_timeout() && !repeated => {
                        leave.say();
                        *state = State::Repeated;
                        continue;
                    }
                    Err(error) => {
                        *state = State::Failed(error);
                        break;
                    }
                }
                *state = State::Answered;
            }
        }
        match self.result() {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }

    fn result(&self) -> Option<Result<Released, Error>> {
        let (all, majority) = (self.core.servers.len(), self.core.majority());
        if self.held >= majority {
            return Some(Ok(Released::Held));
        }
        if self.lost > all - majority {
            return Some(Ok(Released::Lost));
        }
        let is_open = |it: &(Leave, State)| matches!(it.1, State::Sent | State::Repeated);
        if self.leaves.iter().any(is_open) {
            return None;
        }
        match self.held + self.lost + self.unknown >= majority {
            true => Some(Ok(Released::Unknown)),
            false => Some(Err(self.error())),
        }
    }

    fn error(&self) -> Error {
        let failed = self.leaves.iter().filter_map(|(leave, state)| match state {
            State::Failed(error) => Some((leave, error)),
            _ => None,
        });
        if !self.core.is_quorum()
            && let Some((_, error)) = failed.clone().next()
        {
            return error.clone();
        }
        let nodes = failed.map(|(leave, error)| NodeFailure {
            server: leave.server.name.clone(),
            reason: NodeReason::of(error.clone()),
        });
        Error::NoQuorum {
            needed: self.core.majority(),
            granted: self.held,
            nodes: nodes.collect(),
        }
    }
}

impl Drop for Saying<'_> {
    fn drop(&mut self) {
        for (mut leave, state) in self.leaves.drain(..) {
            match state {
                State::Answered => continue,
                State::Failed(_) => leave.said = None,
                State::Sent | State::Repeated => {}
            }
            self.core.upkeep.leave(leave, &self.core.runtime);
        }
    }
}
