//! Changes of a hold: upgrade and downgrade, passing it on, and keeping it taken after its guard. A hold whose change has an unknown
//! outcome is not kept.

use std::sync::Arc;

use crate::acquire::granted;
use crate::belief::{Change, Grant};
use crate::error::{Error, Failed, Loss};
use crate::hold::Hold;
use crate::keeper::Kept;
use crate::name::{Bytes, Mode};
use crate::node::Place;
use crate::request::{self, Late, Name, Queue, Terms};
use crate::retry::Tries;
use crate::servers::Servers;
use crate::time::{BootInstant, Lease};
use crate::token::Token;

/// A change in progress. Dropped before its outcome is known, the hold is over.
struct Changing<'a> {
    hold: &'a Hold,
    is_decided: bool,
}

impl Changing<'_> {
    fn begin(hold: &Hold, change: Change) -> Changing<'_> {
        hold.belief(|belief| belief.begin_change(change));
        Changing {
            hold,
            is_decided: false,
        }
    }

    /// The hold is what it was, or has a new grant.
    fn decide(mut self, granted: Option<Grant>) {
        self.is_decided = true;
        self.hold
            .belief(|belief| belief.end_change(granted, BootInstant::now()));
    }

    /// Decides it by a failure: it is as before, unless the outcome is unknown.
    fn fail(self, failed: &Failed) {
        if !matches!(failed, Failed::Unknown(_)) {
            self.decide(None);
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if !self.is_decided {
            self.hold.end(Loss::Unknown);
            self.hold.leave();
        }
    }
}

impl Hold {
    /// Where the hold is, if it is one key on one server.
    pub(crate) fn one_place(&self) -> Result<Place, Error> {
        let mut places = self.places();
        match (&*self.core.servers, places.len()) {
            (Servers::Quorum(_), _) => Err(crate::servers::not_over_quorum(
                "servers could be left with different modes or holders if some did not answer: release, and acquire anew",
            )),
            (_, 1) => Ok(places.remove(0)),
            _ => Err(Error::Invalid("several keys that were taken together cannot be changed: release, and acquire anew".into())),
        }
    }

    /// Makes a reader a writer: waits until the other readers have left.
    pub(crate) async fn upgrade(self: &Arc<Self>) -> Result<(), Error> {
        let place = self.one_place()?;
        let _turn = self.turn.lock().await;
        let mut tries = Tries::new(self.wait, BootInstant::now());
        loop {
            let token = self.check()?;
            if self.belief(|belief| belief.mode) == Mode::Write {
                return Ok(());
            }
            let changing = Changing::begin(self, Change::Upgrade);
            // It is renewed meanwhile, whatever it was to be.
            self.core.keeper.schedule(self.clone());
            let asked = self
                .unless_lost(self.ask_upgrade(&place, token, &tries))
                .await;
            let failed = match asked.map_err(Error::Lost)? {
                Ok(granted) => {
                    changing.decide(Some(granted));
                    self.belief(|belief| belief.mode = Mode::Write);
                    return Ok(());
                }
                Err(failed) => failed,
            };
            changing.fail(&failed);
            // If the server has denied it because the hold is gone, the next renewal says so.
            if matches!(failed, Failed::Denied) && !tries.is_over(BootInstant::now()) {
                self.renew_alone().await;
            }
            self.check().map_err(|lost| failed.clone().error(lost))?;
            self.core
                .pause(tries.after(failed, BootInstant::now())?)
                .await;
        }
    }

    async fn ask_upgrade(
        &self,
        place: &Place,
        token: Token,
        tries: &Tries,
    ) -> Result<Grant, Failed> {
        let core = &self.core;
        let route = core
            .servers
            .route(&place.key)
            .await
            .map_err(Failed::Refused)?;
        let name = Name {
            keys: [place.key.clone()].into(),
            owner: self.owner.clone(),
        };
        let mail = &route.node.mail;
        let mut entry = mail.enter(&name, self.lease).map_err(Failed::Refused)?;
        let wait = tries.to_queue(BootInstant::now());
        let mailbox = || mail.mailbox(|| core.servers.tag(&place.key));
        let queue = wait.map(|wait| Queue {
            wait,
            mailbox: mailbox(),
        });
        let terms = self.terms(Mode::Write);
        let command = request::add_mode(&place.key, &self.owner, terms, token, queue.as_ref());
        let reply = route.call(&command, core.settings.reply).await?;
        granted(core, &mut entry, reply, terms.lease, wait).await
    }

    /// What a request for another mode asks for.
    fn terms(&self, mode: Mode) -> Terms {
        let lease = self.belief(|belief| belief.lease(BootInstant::now()));
        let permits = self.permits.filter(|_| mode == Mode::Read);
        Terms {
            mode,
            lease,
            permits,
        }
    }

    /// Renews the hold as its keeper does.
    async fn renew_alone(self: &Arc<Self>) {
        let renewals = self.clone().begin_renewals(crate::belief::Which::All);
        self.core.keeper.renew(renewals).await;
    }

    /// Makes a writer a reader: waiting readers are granted the lock, too.
    pub(crate) async fn downgrade(self: &Arc<Self>) -> Result<(), Error> {
        let place = self.one_place()?;
        let _turn = self.turn.lock().await;
        let token = self.check()?;
        if self.belief(|belief| belief.mode) == Mode::Read {
            return Ok(());
        }
        if !self.belief(|belief| belief.reads) {
            let read =
                request::add_mode(&place.key, &self.owner, self.terms(Mode::Read), token, None);
            self.change(&place, &read, request::token).await?;
            self.belief(|belief| belief.reads = true);
        }
        let end = request::end_writing(&place.key, &self.owner, token);
        self.change(&place, &end, request::number).await?;
        self.belief(|belief| belief.mode = Mode::Read);
        Ok(())
    }

    /// Sends what changes the hold, but not its token.
    async fn change<T>(
        &self,
        place: &Place,
        command: &redis::Cmd,
        read: impl FnOnce(redis::Value) -> Result<T, Failed>,
    ) -> Result<(), Error> {
        let changing = Changing::begin(self, Change::Downgrade);
        let reply = self
            .core
            .servers
            .call(place, command, self.core.settings.reply)
            .await;
        match reply.and_then(|reply| read(reply.value)) {
            Ok(_) => {
                changing.decide(None);
                Ok(())
            }
            Err(failed) => {
                changing.fail(&failed);
                if matches!(failed, Failed::Denied) {
                    self.end(Loss::Denied);
                }
                Err(failed.error(Error::Lost(Loss::Denied)))
            }
        }
    }

    /// Transfers the hold to another name. From the moment this is sent nobody may rely on it.
    pub(crate) async fn pass_to(
        self: &Arc<Self>,
        new_owner: Bytes,
        lease: Lease,
    ) -> Result<Token, Error> {
        let place = self.one_place()?;
        let _turn = self.turn.lock().await;
        let token = self.check()?;
        let pass = request::pass(&place.key, &self.owner, &new_owner, lease, token);
        // If the outcome is unknown, neither name keeps a hold.
        let passing = Passing {
            changing: Some(Changing::begin(self, Change::Pass)),
            place: &place,
            new_owner,
            lease,
        };
        let reply = self
            .core
            .servers
            .call(&place, &pass, self.core.settings.reply)
            .await;
        match reply.and_then(|reply| request::token(reply.value)) {
            Ok(token) => {
                passing.decide();
                self.end(Loss::Passed);
                self.set_left();
                Ok(token)
            }
            Err(Failed::Unknown(error)) => Err(error),
            Err(failed) => {
                passing.decide();
                if matches!(failed, Failed::Denied) {
                    self.end(Loss::Denied);
                }
                Err(failed.error(Error::Lost(Loss::Denied)))
            }
        }
    }

    /// Ends the hold, and keeps the lock taken for `lease` from now: by a name that nobody works under.
    pub(crate) async fn keep_for(self: &Arc<Self>, lease: Lease) -> Result<(), Error> {
        let _turn = self.turn.lock().await;
        self.check()?;
        self.end(Loss::Released);
        let new_owner = self.core.names.next();
        let (tokens, needed) = self.belief(|belief| (belief.tokens(), belief.needed()));
        let pass = |(place, token): (Place, Token)| {
            let pass = request::pass(&place.key, &self.owner, &new_owner, lease, token);
            (place, pass)
        };
        let calls: Vec<_> = self.places().into_iter().zip(tokens).map(pass).collect();
        let replies = self
            .core
            .servers
            .call_each(&calls, self.core.settings.reply)
            .await;
        let answers = replies
            .into_iter()
            .map(|reply| reply.and_then(|it| request::token(it.value)));
        let (passed, failed): (Vec<_>, Vec<_>) = answers.partition(Result::is_ok);
        if failed.is_empty() {
            self.set_left();
        }
        match failed.into_iter().find_map(Result::err) {
            Some(failed) if passed.len() < needed => Err(failed.error(Error::Lost(Loss::Denied))),
            _ => Ok(()),
        }
    }
}

/// A pass in progress. Dropped before its outcome is known, both names are left.
struct Passing<'a> {
    changing: Option<Changing<'a>>,
    place: &'a Place,
    new_owner: Bytes,
    lease: Lease,
}

impl Passing<'_> {
    fn decide(mut self) {
        if let Some(changing) = self.changing.take() {
            changing.decide(None);
        }
    }
}

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        if let Some(changing) = self.changing.take() {
            let core = changing.hold.core.clone();
            core.leave(
                self.place.clone(),
                self.new_owner.clone(),
                self.lease,
                Late::Requests,
            );
        }
    }
}
