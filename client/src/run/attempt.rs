//! One request under one name, to one server: sent to where it belongs, waited for by mail, and left if it is dropped before
//! its outcome is known.

use std::sync::Arc;
use std::time::Duration;

use crate::proto::acquire::{Acquisition, Next, Terms};
use crate::proto::command::{Command, Wait, Who};
use crate::proto::mailbox::Decision;
use crate::proto::reply::{Answer, Reply};
use crate::run::core::Core;
use crate::run::mail::Entry;
use crate::value::clock::BootInstant;
use crate::value::lease::Lease;
use crate::value::token::Token;

const REDIRECTIONS: u32 = 8;

/// One request under one name, to one server; left when this is dropped, unless what became of it is known.
pub(crate) struct Attempt<'a> {
    core: &'a Arc<Core>,
    server: usize,
    key: &'a Arc<[u8]>,
    owner: Arc<[u8]>,
    lease: Lease,
    is_settled: bool,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(
        core: &'a Arc<Core>,
        server: usize,
        key: &'a Arc<[u8]>,
        owner: Arc<[u8]>,
        lease: Lease,
    ) -> Attempt<'a> {
        Attempt {
            core,
            server,
            key,
            owner,
            lease,
            is_settled: false,
        }
    }

    fn who(&self) -> Who<'_> {
        (self.key, &self.owner)
    }

    /// What became of it is known: nothing is left. Returns the name.
    pub(crate) fn settled(mut self) -> Arc<[u8]> {
        self.is_settled = true;
        self.owner.clone()
    }

    /// It has ended; `leave`: and nobody knows how.
    pub(crate) fn end(mut self, leave: bool) {
        self.is_settled = !leave;
    }

    /// Asks, waits for a letter if there is to be one, and says what is next.
    pub(crate) async fn ask_by(
        &self,
        acquisition: &mut Acquisition,
        terms: Terms,
        upgrade: Option<Token>,
    ) -> Next {
        let server = &self.core.servers[self.server];
        let ask = |now| acquisition.ask(now);
        let (answer, entry) = self.ask(terms, ask, (None, upgrade)).await;
        let next = match &answer {
            Ok(reply @ Reply::Array(_)) if entry.is_some() => Some(reply.clone()),
            _ => None,
        };
        let now = BootInstant::now();
        let after = acquisition.on_answer(answer, &server.name, now);
        let (Next::AwaitLetter, Some(entry), Some(queued)) = (&after, &entry, next) else {
            return after;
        };
        let returns = || self.core.returns(self.server);
        let decision = entry.decision(&queued, &self.core.runtime, returns).await;
        if upgrade.is_some() && matches!(decision, Decision::NewBox) {
            // It waits no more, and asks only to add to what is there.
            let pause = Duration::ZERO;
            return Next::Again {
                leave: false,
                pause,
            };
        }
        acquisition.on_decision(decision, &server.name, BootInstant::now())
    }

    /// Sends the request to where it belongs. With the answer comes the entry of who waits.
    async fn ask(
        &self,
        terms: Terms,
        mut queue: impl FnMut(BootInstant) -> Option<u64>,
        (fence, upgrade): (Option<Token>, Option<Token>),
    ) -> (Answer, Option<Entry>) {
        let server = &self.core.servers[self.server];
        let mut route = server.route(self.key);
        for _ in 0..REDIRECTIONS {
            let now = BootInstant::now();
            let limit = queue(now);
            let mail = limit.map(|_| self.core.mail(self.server, &route.peer, self.key));
            // Before the request is sent: a letter may overtake the reply.
            let entry = mail.as_ref().map(|mail| mail.enter(self.owner.clone()));
            let wait = limit.zip(mail.as_ref()).map(|(limit, mail)| Wait {
                limit,
                mailbox: &mail.name,
            });
            let command = Command::Acquire {
                who: self.who(),
                mode: terms.mode,
                lease: terms.lease,
                wait,
                fence,
                upgrade,
            };
            let answer = route.send(&command, now).await;
            match server.redirected(&route, &answer) {
                Some(next) => route = next,
                None => return (answer, entry),
            }
        }
        let error = "TRYAGAIN the slot of this key is on its way".to_owned();
        (Ok(Reply::Error(error)), None)
    }

    pub(crate) async fn renew(&self, token: Token) -> Answer {
        let command = Command::Renew {
            who: self.who(),
            lease: self.lease,
            token: Some(token),
        };
        self.core.servers[self.server].call(&command).await
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            let names = (self.key.clone(), self.owner.clone());
            self.core.leave(self.server, names, self.lease, true);
        }
    }
}
