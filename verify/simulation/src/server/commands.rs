//! The commands that the client sends: parse, ask the core, reply.

use mortise_core::{
    AcquireError, How, KeyId, Lease, Live, Mode, OwnerRef, Pass, PassError, Release, Token,
};

use super::letters::Call;
use super::resp::Out;
use super::{Server, home_key, key_id};
use crate::parts::ConnId;

pub(super) const LEFT: &str = "LEFT the owner has left this key";
const REVOKED: &str = "REVOKED the owner's hold on this key was revoked";
pub(super) const NOT_GRANTING: &str = "TRYAGAIN nothing is granted";
pub(super) const DEADLOCK: &str = "DEADLOCK the wait would close a cycle of waits";
const NOT_RENEWING: &str = "TRYAGAIN nothing is renewed";

/// The reply to a request that can never be granted.
pub(super) fn error_text(error: AcquireError) -> String {
    match error {
        AcquireError::Revoked => REVOKED.to_owned(),
        AcquireError::HoldsOne => "ERR the owner holds one of these keys".to_owned(),
        error => format!("ERR {error:?}"),
    }
}

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

    /// The option `TOKEN`, if it is there. It is the last word.
    fn only_token(&mut self) -> Option<Option<Token>> {
        match self.next() {
            None => Some(None),
            Some(b"TOKEN") => Some(Some(Token::new(self.number()?)?)),
            Some(_) => None,
        }
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
        self.set_now(now);
        let Some(mut words) = Words::of(words) else {
            return Some(Out::error("ERR no command"));
        };
        let reply = match words.name {
            b"INFO" => {
                let (id, clock) = (self.run_id, self.memory.wall.0);
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
        let release = Release { owner, how, token };
        self.change_hold(key, owner, |server, key| {
            let released = server.memory.release(key, &release);
            Out::number_or_null(released.ok().map(|it| it.left))
        })
    }

    /// Changes a hold of an owner that has not left the key.
    fn change_hold(
        &mut self,
        key: &[u8],
        owner: OwnerRef<'_>,
        change: impl FnOnce(&mut Self, &KeyId) -> Vec<u8>,
    ) -> Option<Vec<u8>> {
        let key = key_id(key);
        if self.has_left(&key, owner) {
            return Some(Out::null());
        }
        self.settle(&key);
        let reply = change(self, &key);
        self.settle(&key);
        Some(reply)
    }

    fn leave(&mut self, words: &mut Words<'_>) -> Option<Vec<u8>> {
        let (name, owner) = words.who()?;
        let key = key_id(name);
        match words.next() {
            None => {}
            Some(b"FOR") => {
                let until = self.memory.now.after(words.number()?);
                self.left.leave(key.as_ref(), owner, until);
            }
            Some(_) => return None,
        }
        let everything = Release {
            owner,
            how: How::All,
            token: None,
        };
        self.settle(&key);
        let mut found = self.memory.release(&key, &everything).is_ok();
        let requests = self.memory.queues.requests_of(key.as_ref(), owner);
        found |= !requests.is_empty();
        for id in requests {
            self.mail.forget_request(id);
            self.memory.remove(id);
        }
        for grant in self.undelivered.take_all_of(&home_key(&key), owner) {
            self.undo_except(&grant, Some(&key));
        }
        self.settle(&key);
        Some(Out::number(u64::from(found)))
    }

    fn renew(&mut self, words: &mut Words<'_>) -> Option<Vec<u8>> {
        let (key, owner) = words.who()?;
        let lease = Lease::from_millis(words.number()?)?;
        let token = words.only_token()?;
        self.change_hold(key, owner, |server, key| {
            if server.memory.grace && server.memory.hold(key, owner).is_some() {
                return Out::error(NOT_RENEWING);
            }
            let renewed = server.memory.renew(key, owner, lease, token);
            Out::number_or_null(renewed.map(|stake| stake.token.get()))
        })
    }

    /// Passes the whole hold on to another name.
    fn pass(&mut self, words: &mut Words<'_>) -> Option<Vec<u8>> {
        let (key, owner) = words.who()?;
        let new_owner = OwnerRef::new(words.next()?)?;
        let pass = Pass {
            owner,
            new_owner,
            lease: Lease::from_millis(words.number()?)?,
            token: words.only_token()?,
            client: 0,
        };
        self.change_hold(key, owner, |server, key| {
            let passable = |live: &mut Live<'_>| live.passable(owner, pass.token).is_some();
            if !server.memory.with_live(key, |_, live| passable(live)) {
                return Out::null();
            }
            if server.memory.grace {
                return Out::error(NOT_GRANTING);
            }
            if server.has_left(key, new_owner) {
                return Out::error(LEFT);
            }
            match server.memory.pass(key, &pass) {
                Ok(passed) => Out::number(passed.token.get()),
                Err(PassError::NotHeld) => Out::null(),
                Err(error) => Out::error(&format!("ERR {error:?}")),
            }
        })
    }

    /// Lets a hold end with its lease.
    fn revoke(&mut self, words: &mut Words<'_>) -> Option<Vec<u8>> {
        let (key, owner) = words.who()?;
        if words.next().is_some() {
            return None;
        }
        self.change_hold(key, owner, |server, key| {
            let revoked = server.memory.revoke(key, owner);
            Out::number_or_null(revoked.map(|revoked| revoked.left))
        })
    }

    fn fence(&mut self, words: &mut Words<'_>) -> Option<Vec<u8>> {
        let (key, owner) = words.who()?;
        let token = Token::new(words.number()?)?;
        let wall = self.memory.wall;
        if self.memory.tokens.check(token, wall).is_err() {
            return Some(Out::error("ERR token is too high"));
        }
        self.change_hold(key, owner, |server, key| {
            if server.memory.grace && server.memory.hold(key, owner).is_some() {
                return Out::error(NOT_RENEWING);
            }
            let fenced = server.memory.with_live(key, |memory, live| {
                live.fence(owner, token, &mut memory.tokens, wall)
            });
            let stake = fenced.ok().flatten();
            Out::number_or_null(stake.map(|it| it.token.get()))
        })
    }
    /// The command inside writes the token. A smaller one than the last is what a fence must refuse.
    fn guard(&mut self, words: &mut Words<'_>) -> Option<Vec<u8>> {
        let (name, owner) = words.who()?;
        let (key, token) = (key_id(name), Token::new(words.number()?)?);
        self.settle(&key);
        let hold = self.memory.hold(&key, owner);
        let hold = hold.filter(|hold| hold.token == token);
        let Some(hold) = hold.filter(|_| !self.memory.grace && !self.has_left(&key, owner)) else {
            return Some(Out::error("NOTHELD the owner does not hold the lock"));
        };
        if words.next().is_some() && hold.write > 0 {
            let last = self.written.entry(name.to_vec()).or_default();
            if token.get() < *last {
                let key = String::from_utf8_lossy(name);
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
