//! The commands that the client sends: parse, ask the core, reply.

use mortise_core::mail::Outcome;
use mortise_core::{How, Lease, Mode, OwnerRef, Pass, PassError, Release, Token};

use super::letters::Call;
use super::resp::Out;
use super::{Server, home_key, key_ref};
use crate::parts::ConnId;

pub(super) const LEFT: &str = "LEFT the owner has left this key";
pub(super) const REVOKED: &str = "REVOKED the owner's hold on this key was revoked";
pub(super) const NOT_GRANTING: &str = "TRYAGAIN nothing is granted";
pub(super) const DEADLOCK: &str = "DEADLOCK the wait would close a cycle of waits";
const NOT_RENEWING: &str = "TRYAGAIN nothing is renewed";

/// A command, word by word.
pub(super) struct Words<'a> {
    name: &'a [u8],
    rest: std::slice::Iter<'a, Vec<u8>>,
}

impl<'a> Words<'a> {
    fn of(words: &'a [Vec<u8>]) -> Option<Words<'a>> {
        let (name, rest) = words.split_first()?;
        let rest = rest.iter();
        Some(Words { name, rest })
    }

    pub(super) fn next(&mut self) -> Option<&'a [u8]> {
        self.rest.next().map(Vec::as_slice)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        std::str::from_utf8(self.next()?).ok()?.parse().ok()
    }

    pub(super) fn who(&mut self) -> Option<(&'a [u8], OwnerRef<'a>)> {
        Some((self.next()?, OwnerRef::new(self.next()?)?))
    }
}

impl Server {
    /// Returns the reply, unless it comes later. `from` is the command's connection, if it still exists.
    pub(crate) fn command(
        &mut self,
        from: Option<ConnId>,
        words: &[Vec<u8>],
        now: u64,
    ) -> Option<Vec<u8>> {
        self.now = now;
        let Some(mut words) = Words::of(words) else {
            return Some(Out::error("ERR no command"));
        };
        let reply = match words.name {
            b"INFO" => {
                let (id, clock) = (self.run_id, self.wall().0);
                let info = format!("run_id:{id:x}\r\nserver_time_usec:{clock}\r\n");
                Some(Out::bulk(info.as_bytes()))
            }
            b"CLIENT" => Some(Out::bulk(b"OK")),
            b"LOCK.ACQUIRE" | b"LOCK.WLOCK" => self.acquire(&mut words, Mode::Write),
            b"LOCK.RLOCK" => self.acquire(&mut words, Mode::Read),
            b"LOCK.MACQUIRE" => self.acquire_several(&mut words),
            b"LOCK.RELEASE" => self.release(&mut words),
            b"LOCK.LEAVE" => self.leave(&mut words),
            b"LOCK.RENEW" => self.renew(&mut words),
            b"LOCK.FENCE" => self.fence(&mut words),
            b"LOCK.GUARD" => self.guard(&mut words),
            b"LOCK.PASS" => self.pass(&mut words),
            b"LOCK.REVOKE" => self.revoke(&mut words),
            b"LOCK.INFO" => Some(Out::null()),
            b"LOCK.MAIL" => {
                let name = words.next()?;
                let call = mail_call(&mut words);
                return self.collect(from, name, call);
            }
            _ => None,
        };
        self.end_turn();
        let name = || String::from_utf8_lossy(words.name).into_owned();
        Some(reply.unwrap_or_else(|| {
            self.wrong = Some(format!("the client sent {}, which no server takes", name()));
            Out::error("ERR syntax error")
        }))
    }

    fn release(&mut self, words: &mut Words<'_>) -> Option<Vec<u8>> {
        let (key, owner) = words.who()?;
        let (mut mode, mut holds, mut all, mut token) = (None, None, false, None);
        while let Some(option) = words.next() {
            match option {
                b"READ" => mode = Some(Mode::Read),
                b"WRITE" => mode = Some(Mode::Write),
                b"HOLDS" => holds = Some(words.number()? as u32),
                b"ALL" => all = true,
                b"TOKEN" => token = Some(Token::new(words.number()?)?),
                _ => return None,
            }
        }
        let how = match (all, holds) {
            (true, _) => How::All,
            (false, Some(holds)) => How::LeaveAt(holds, mode),
            (false, None) => How::One(mode),
        };
        if self.left.has_left(key_ref(key), owner, self.instant()) {
            return Some(Out::null());
        }
        let release = Release { owner, how, token };
        self.settle(key);
        let released = self.with_live(key, |_, live| live.release(&release));
        self.settle(key);
        Some(Out::number_or_null(released.ok().map(|it| it.left)))
    }

    fn leave(&mut self, words: &mut Words<'_>) -> Option<Vec<u8>> {
        let (key, owner) = words.who()?;
        match words.next() {
            None => {}
            Some(b"FOR") => {
                let until = self.instant().after(words.number()?);
                self.left.leave(key_ref(key), owner, until);
            }
            Some(_) => return None,
        }
        let everything = Release {
            owner,
            how: How::All,
            token: None,
        };
        self.settle(key);
        let mut found = self.with_live(key, |_, live| live.release(&everything).is_ok());
        let requests = self.queues.requests_of(key_ref(key), owner);
        found |= !requests.is_empty();
        for id in requests {
            self.mail.forget_request(id);
            self.remove(id);
        }
        for grant in self.undelivered.take_all_of(&home_key(key), owner) {
            self.undo_except(&grant, Some(key));
        }
        self.settle(key);
        Some(Out::number(u64::from(found)))
    }

    fn renew(&mut self, words: &mut Words<'_>) -> Option<Vec<u8>> {
        let (key, owner) = words.who()?;
        let lease = Lease::from_millis(words.number()?)?;
        let token = match words.next() {
            None => None,
            Some(b"TOKEN") => Some(Token::new(words.number()?)?),
            Some(_) => return None,
        };
        if self.left.has_left(key_ref(key), owner, self.instant()) {
            return Some(Out::null());
        }
        self.settle(key);
        if self.forbids_grants() && self.with_live(key, |_, live| live.hold(owner)).is_some() {
            return Some(Out::error(NOT_RENEWING));
        }
        let renewed = self.with_live(key, |_, live| live.renew(owner, lease, token));
        self.settle(key);
        Some(Out::number_or_null(renewed.map(|stake| stake.token.get())))
    }

    /// Transfers the whole hold to another name.
    fn pass(&mut self, words: &mut Words<'_>) -> Option<Vec<u8>> {
        let (key, owner) = words.who()?;
        let new_owner = OwnerRef::new(words.next()?)?;
        let lease = Lease::from_millis(words.number()?)?;
        let token = match words.next() {
            None => None,
            Some(b"TOKEN") => Some(Token::new(words.number()?)?),
            Some(_) => return None,
        };
        if self.left.has_left(key_ref(key), owner, self.instant()) {
            return Some(Out::null());
        }
        self.settle(key);
        let held = self.with_live(key, |_, live| live.passable(owner, token).is_some());
        if !held {
            return Some(Out::null());
        }
        if self.forbids_grants() {
            return Some(Out::error(NOT_GRANTING));
        }
        let now = self.instant();
        if self.left.has_left(key_ref(key), new_owner, now) {
            return Some(Out::error(LEFT));
        }
        let pass = Pass {
            owner,
            new_owner,
            lease,
            token,
            client: 0,
        };
        let wall = self.wall();
        let passed = self.with_live(key, |server, live| {
            live.pass(&pass, &mut server.tokens, wall)
        });
        let reply = match passed {
            Ok(passed) => {
                self.queues.came_to_hold(key_ref(key), new_owner);
                Out::number(passed.token.get())
            }
            Err(PassError::NotHeld) => Out::null(),
            Err(error) => Out::error(&format!("ERR {error:?}")),
        };
        self.settle(key);
        Some(reply)
    }

    /// Lets a hold end with its lease.
    fn revoke(&mut self, words: &mut Words<'_>) -> Option<Vec<u8>> {
        let (key, owner) = words.who()?;
        if words.next().is_some() {
            return None;
        }
        if self.left.has_left(key_ref(key), owner, self.instant()) {
            return Some(Out::null());
        }
        self.settle(key);
        let revoked = self.with_live(key, |_, live| live.revoke(owner, None));
        if revoked.is_some_and(|revoked| revoked.changed) {
            for id in self.queues.requests_of(key_ref(key), owner) {
                self.end_waiting(id, Outcome::Refused(REVOKED.into()));
            }
        }
        self.settle(key);
        Some(Out::number_or_null(revoked.map(|it| it.left)))
    }

    fn fence(&mut self, words: &mut Words<'_>) -> Option<Vec<u8>> {
        let (key, owner) = words.who()?;
        let token = Token::new(words.number()?)?;
        let wall = self.wall();
        if self.tokens.check(token, wall).is_err() {
            return Some(Out::error("ERR token is too high"));
        }
        if self.left.has_left(key_ref(key), owner, self.instant()) {
            return Some(Out::null());
        }
        self.settle(key);
        if self.forbids_grants() && self.with_live(key, |_, live| live.hold(owner)).is_some() {
            return Some(Out::error(NOT_RENEWING));
        }
        let fenced = self.with_live(key, |server, live| {
            live.fence(owner, token, &mut server.tokens, wall)
        });
        self.settle(key);
        let stake = fenced.ok().flatten();
        Some(Out::number_or_null(stake.map(|it| it.token.get())))
    }

    /// The command inside writes the token. A smaller one than the last is what a fence must refuse.
    fn guard(&mut self, words: &mut Words<'_>) -> Option<Vec<u8>> {
        let (key, owner) = words.who()?;
        let token = Token::new(words.number()?)?;
        if self.left.has_left(key_ref(key), owner, self.instant()) {
            return Some(Out::error("NOTHELD the owner does not hold the lock"));
        }
        self.settle(key);
        let hold = self.with_live(key, |_, live| live.hold(owner));
        if self.forbids_grants() || hold.is_none_or(|hold| hold.token != token) {
            return Some(Out::error("NOTHELD the owner does not hold the lock"));
        }
        if words.next().is_some() && hold.is_some_and(|hold| hold.write > 0) {
            let last = self.written.entry(key.to_vec()).or_default();
            if token.get() < *last {
                let key = String::from_utf8_lossy(key);
                self.wrong = Some(format!("{key} was written with {token:?} after {last}"));
            }
            *last = token.get();
        }
        Some(Out::number(token.get()))
    }
}

fn mail_call(words: &mut Words<'_>) -> Call {
    let mut call = Call {
        after: None,
        wait: None,
        count: 100,
    };
    while let Some(option) = words.next() {
        match option {
            b"AFTER" => call.after = words.number().zip(words.number()),
            b"WAIT" => call.wait = words.number(),
            b"COUNT" => call.count = words.number().unwrap_or(100) as usize,
            _ => {}
        }
    }
    call
}
