//! A hold that guards share: they renew it, release it, or keep the lock taken after it.

use std::sync::Arc;

use futures_util::future::join_all;
use redis::Cmd;

use crate::belief::Belief;
use crate::core::Core;
use crate::error::{Error, Failed, Loss};
use crate::hold::Hold;
use crate::name::Bytes;
use crate::node::Place;
use crate::request::{self, Terms};
use crate::time::{BootInstant, Lease};
use crate::token::Token;

/// Dropped, the hold is released in the background.
pub(crate) struct Share {
    pub(crate) core: Arc<Core>,
    pub(crate) hold: Arc<Hold>,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.hold.end(Loss::Released);
        self.core.leave_hold(&self.hold);
    }
}

impl Share {
    /// What was granted, once it is certain that it is there. The keeper renews it, and reports its loss.
    pub(crate) async fn new(
        core: &Arc<Core>,
        owner: Bytes,
        terms: &Terms,
        mut belief: Belief,
        places: Vec<Place>,
    ) -> Result<Share, Error> {
        let newest = terms.lease.believed_until(BootInstant::now());
        let missing = newest.since(belief.deadline());
        if let Some(limit) = terms.max_hold {
            belief.limit(limit);
        }
        let (core, hold) = (
            core.clone(),
            Hold::new(owner, terms.clone(), belief, places),
        );
        let share = Share {
            core,
            hold: Arc::new(hold),
        };
        share.core.keeper.schedule(&share.hold);
        // What closing the client did not find is given back here.
        share.core.check_open()?;
        // The letter may have been late. Past half of the lease, the server has to confirm that the hold is still there. Where
        // replicas have to, nothing else counts.
        if missing > terms.lease.duration() / 2 || share.core.settings.replicas > 0 {
            share.renew().await?;
        }
        Ok(share)
    }

    /// Renews it now: once more, if a connection was broken. Returns once its servers have answered: enough of them must have
    /// confirmed it.
    pub(crate) async fn renew(&self) -> Result<(), Error> {
        let _turn = self.hold.turn.lock().await;
        self.hold.check()?;
        match self.core.keeper.renew_now(&self.hold).await {
            Err(error) if error.is_broken() => self.core.keeper.renew_now(&self.hold).await,
            renewed => renewed,
        }
    }

    /// Releases it. What the servers do not confirm is released in the background, and so is what a dropped future leaves.
    pub(crate) async fn release(&self) -> Result<(), Error> {
        let owner = &self.hold.owner;
        self.give_up(|key| request::release(key, owner))
            .await
            .map(drop)
    }

    /// Keeps the lock taken for `lease` from now: by a name that nobody works under.
    pub(crate) async fn keep_for(&self, lease: Lease) -> Result<(), Error> {
        let (owner, nobody) = (&self.hold.owner, self.core.names.next());
        let pass = |key: &Bytes| request::pass(key, owner, &nobody, lease);
        for (Place { node, key }, token) in self.give_up(pass).await? {
            if let Some(replicas) = &node.replicas {
                let token = Token::new(token);
                let confirmed = replicas.confirm_grant(&key, &nobody, lease, token).await;
                confirmed.map_err(|failed| failed.error(Error::Lost(Loss::Denied)))?;
            }
        }
        Ok(())
    }

    /// Ends it, by a command for each of its parts. Returns where that was done, and what the servers replied.
    async fn give_up(&self, command: impl Fn(&Bytes) -> Cmd) -> Result<Vec<(Place, u64)>, Error> {
        let hold = &self.hold;
        if !hold.end(Loss::Released) {
            return Err(Error::Lost(hold.loss().unwrap_or(Loss::Released)));
        }
        let (tokens, needed) = hold.belief(|belief| (belief.tokens(), belief.needed()));
        let calls = hold.places().into_iter().zip(tokens).map(|(place, token)| {
            let command = request::by(token, command(&place.key));
            let node = self.core.servers.home(&place);
            let place = Place { node, ..place };
            async move {
                let limit = self.core.settings.reply;
                let reply = self.core.servers.call(&place, &command, limit).await?;
                Ok((place, request::number(reply.value)?))
            }
        });
        let answers: Vec<Result<_, Failed>> = join_all(calls).await;
        let is_done = |answer: &Result<_, Failed>| matches!(answer, Ok(_) | Err(Failed::Denied));
        if answers.iter().all(is_done) {
            self.set_left();
        }
        let (done, failed): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        match failed.into_iter().find_map(Result::err) {
            Some(failed) if done.len() < needed => Err(failed.error(Error::Lost(Loss::Denied))),
            _ => Ok(done.into_iter().flatten().collect()),
        }
    }

    /// Nothing is left to be released: it was, or it belongs to another name.
    pub(crate) fn set_left(&self) {
        self.hold.leave();
        self.core.keeper.forget(&self.hold);
    }
}
