//! Requests to hold, for one key or for several: granted now, or enqueued.

use mortise_core::{
    AcquireError, Count, Instant, KeyId, Lease, Mode, OwnerRef, Request, Sharing, Terms, Token,
};
use mortise_memory_server::{Answer, Ask, WaitsAlready};

use super::commands::{DEADLOCK, LEFT, NOT_GRANTING, Words, error_text};
use super::resp::Out;
use super::{Server, key_id};

/// What a request to hold says.
struct Call<'a> {
    keys: Vec<KeyId>,
    request: Request<'a>,
    /// How long it may wait, in milliseconds; 0 for no limit.
    wait: Option<u64>,
    mailbox: Option<&'a [u8]>,
}

impl<'a> Call<'a> {
    /// `LOCK.ACQUIRE key owner lease …`, and the like.
    fn for_one(words: &mut Words<'a>, mode: Mode) -> Option<Self> {
        let (key, owner) = words.who()?;
        let lease = Lease::from_millis(words.number()?)?;
        Self::with_options(words, vec![key_id(key)], owner, lease, mode.into())
    }

    /// `LOCK.MACQUIRE owner lease numkeys key …`
    fn for_several(words: &mut Words<'a>) -> Option<Self> {
        let owner = OwnerRef::new(words.next()?)?;
        let lease = Lease::from_millis(words.number()?)?;
        let count = words.number()?;
        let keys: Option<Vec<KeyId>> = (0..count).map(|_| words.next().map(key_id)).collect();
        Self::with_options(words, keys?, owner, lease, Sharing::several(count as u8))
    }

    fn with_options(
        words: &mut Words<'a>,
        keys: Vec<KeyId>,
        owner: OwnerRef<'a>,
        lease: Lease,
        sharing: Sharing,
    ) -> Option<Self> {
        let mut terms = Terms {
            sharing,
            lease,
            holds: None,
            fence: None,
            token: None,
            client: 0,
        };
        let (mut wait, mut mailbox) = (None, None);
        let is_one = sharing.keys().is_none();
        while let Some(option) = words.next() {
            match option {
                b"WAIT" => wait = Some(words.number()?),
                b"MAIL" => mailbox = Some(words.next()?),
                b"FENCE" => terms.fence = Some(Token::new(words.number()?)?),
                b"HOLDS" if is_one => terms.holds = Count::new(words.number()? as u32),
                b"LIMIT" if is_one => {
                    terms.sharing = Sharing::within(Count::new(words.number()? as u32)?);
                }
                b"TOKEN" if is_one => terms.token = Some(Token::new(words.number()?)?),
                _ => return None,
            }
        }
        Some(Self {
            keys,
            request: Request { owner, terms },
            wait,
            mailbox,
        })
    }
}

impl Server {
    pub(super) fn acquire(&mut self, words: &mut Words<'_>, mode: Mode) -> Option<Vec<u8>> {
        Some(self.decide(&Call::for_one(words, mode)?))
    }

    pub(super) fn acquire_several(&mut self, words: &mut Words<'_>) -> Option<Vec<u8>> {
        Some(self.decide(&Call::for_several(words)?))
    }

    fn decide(&mut self, call: &Call<'_>) -> Vec<u8> {
        let (keys, request) = (&call.keys, call.request);
        if keys.iter().any(|key| self.has_left(key, request.owner)) {
            return Out::error(LEFT);
        }
        let (fence, wall) = (request.terms.fence, self.memory.wall);
        if fence.is_some_and(|fence| self.memory.tokens.check(fence, wall).is_err()) {
            return Out::error("ERR FENCE is too high");
        }
        keys.iter().for_each(|key| self.settle(key));
        // A request that waits does so by mail.
        let by_mail = call.wait.zip(call.mailbox);
        let is_by_mail = |id| by_mail.is_some() && self.mail.is_expected(id);
        let repeats = match self.memory.repeated(keys, &request, is_by_mail) {
            Ok(repeats) => repeats,
            Err(WaitsAlready::Here) => {
                return Out::error("ERR the owner waits at one of these keys");
            }
            Err(WaitsAlready::ForSeveral) => {
                return Out::error("ERR the owner waits here for several keys");
            }
        };
        let answer = self.memory.ask(&Ask {
            keys,
            request,
            until: by_mail.map(|(wait, _)| self.end_of_wait(wait)),
            repeats,
        });
        let reply = self.reply(call, answer);
        keys.iter().for_each(|key| self.settle(key));
        reply
    }

    fn reply(&mut self, call: &Call<'_>, answer: Answer) -> Vec<u8> {
        let reply = match answer {
            Answer::Granted(grant) | Answer::LetPast(grant) => Out::number(grant.token().get()),
            Answer::Denied
            | Answer::Refused(AcquireError::NotHeldByToken | AcquireError::NoRoom) => Out::null(),
            Answer::Refused(error) => return Out::error(&error_text(error)),
            Answer::NotGranting => return Out::error(NOT_GRANTING),
            Answer::Deadlock(_) => return Out::error(DEADLOCK),
            Answer::Waits { id, .. } => {
                let mailbox = self.open_box(call.mailbox.unwrap_or_default());
                self.mail.expect(id, mailbox, call.keys.len());
                return Out::queued(mailbox);
            }
        };
        // The request was not refused, so its box exists from now on.
        if let Some(mailbox) = call.mailbox {
            self.open_box(mailbox);
        }
        reply
    }

    fn end_of_wait(&self, wait: u64) -> Instant {
        match wait {
            0 => Instant::NEVER,
            wait => self.memory.now.after(wait),
        }
    }
}
