//! Commands as they are sent. Each says what it means, so that sending it twice changes nothing.

use std::sync::Arc;

use crate::value::{BootInstant, Lease, Mode, Token};

/// How long a name that may still be used by something late is barred, in milliseconds.
pub(crate) const STAY_AWAY: u64 = 60_000;

/// A key and an owner.
pub(crate) type Who<'a> = (&'a [u8], &'a [u8]);

/// A key, and the name of one acquisition of it.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    pub(crate) key: Arc<[u8]>,
    pub(crate) owner: Arc<[u8]>,
}

impl Name {
    /// A key, whoever has it.
    pub(crate) fn nobodys(key: &[u8]) -> Name {
        let (key, owner) = (key.into(), Arc::default());
        Name { key, owner }
    }

    pub(crate) fn who(&self) -> Who<'_> {
        (&self.key, &self.owner)
    }
}

/// What is asked for a name.
#[derive(Debug, Clone)]
pub(crate) enum Verb {
    Acquire {
        mode: Mode,
        lease: Lease,
        /// The token granted is to be at least that.
        fence: Option<Token>,
        /// Only adds to a hold of this token.
        upgrade: Option<Token>,
    },
    /// The whole hold, or what one of this token has in one mode.
    Release(Option<(Mode, Token)>),
    /// Whatever there is; and what may come late.
    Leave {
        late: bool,
    },
    Renew(Lease, Option<Token>),
    Fence(Token),
    /// Runs a command if the hold is there, by this token.
    Guard(Token, Arc<[Vec<u8>]>),
    /// Who holds the key, and who waits.
    Info,
}

impl Verb {
    /// Until when a hold may be believed in that was granted, or renewed, by what was sent then.
    pub(crate) fn believed_until(&self, sent: BootInstant) -> BootInstant {
        match self {
            Verb::Acquire { lease, .. } | Verb::Renew(lease, _) => lease.believed_until(sent),
            _ => sent,
        }
    }
}

/// Waiting by mail: for so many milliseconds, 0 without limit, and the name of the box.
pub(crate) type Wait<'a> = (u64, &'a [u8]);

/// A command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Command<'a> {
    Of(Who<'a>, &'a Verb, Option<Wait<'a>>),
    /// Collects letters, where those up to a number may be forgotten; for so many milliseconds.
    Mail(&'a [u8], Option<(u64, u64)>, u64),
    Top(usize),
    /// Any other.
    Plain(&'a [&'a [u8]]),
}

impl Command<'_> {
    /// Appends it as it goes over the wire.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut args = Args { out, count: 0 };
        match *self {
            Command::Of(who, verb, wait) => {
                args.verb(who, verb);
                if let Some((limit, mailbox)) = wait {
                    args.option("WAIT", limit).text("MAIL").bytes(mailbox);
                }
            }
            Command::Mail(mailbox, after, wait) => {
                args.text("LOCK.MAIL").bytes(mailbox);
                if let Some((since, number)) = after {
                    args.option("AFTER", since).number(number);
                }
                args.option("WAIT", wait);
            }
            Command::Top(count) => _ = args.text("LOCK.TOP").option("COUNT", count as u64),
            Command::Plain(words) => args.all(words),
        }
        // The count comes first, and is known last.
        let (count, end) = (args.count, out.len());
        line(out, b'*', count);
        let length = out.len() - end;
        out[start..].rotate_right(length);
    }
}

/// The arguments of a command, as they are written.
struct Args<'a> {
    out: &'a mut Vec<u8>,
    count: usize,
}

impl Args<'_> {
    fn verb(&mut self, who: Who<'_>, verb: &Verb) {
        match *verb {
            Verb::Acquire {
                mode,
                lease,
                fence,
                upgrade,
            } => {
                self.text(mode.command()).who(who);
                self.number(lease.as_millis()).option("HOLDS", 1);
                self.token("FENCE", fence).token("TOKEN", upgrade);
            }
            Verb::Release(None) => _ = self.text("LOCK.RELEASE").who(who).text("ALL"),
            Verb::Release(Some((mode, token))) => {
                self.text("LOCK.RELEASE").who(who).text(mode.option());
                self.option("HOLDS", 0).token("TOKEN", Some(token));
            }
            Verb::Leave { late } => {
                self.text("LOCK.LEAVE").who(who);
                if late {
                    self.option("FOR", STAY_AWAY);
                }
            }
            Verb::Renew(lease, token) => {
                self.text("LOCK.RENEW").who(who);
                self.number(lease.as_millis()).token("TOKEN", token);
            }
            Verb::Fence(token) => _ = self.text("LOCK.FENCE").who(who).number(token.get()),
            Verb::Guard(token, ref command) => {
                self.text("LOCK.GUARD").who(who).number(token.get());
                self.all(command);
            }
            Verb::Info => _ = self.text("LOCK.INFO").bytes(who.0),
        }
    }

    fn all(&mut self, words: &[impl AsRef<[u8]>]) {
        words.iter().for_each(|word| _ = self.bytes(word.as_ref()));
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.count += 1;
        line(self.out, b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    fn number(&mut self, number: u64) -> &mut Self {
        let (digits, first) = decimal(number);
        self.bytes(&digits[first..])
    }

    fn who(&mut self, (key, owner): Who<'_>) -> &mut Self {
        self.bytes(key).bytes(owner)
    }

    fn option(&mut self, name: &str, number: u64) -> &mut Self {
        self.text(name).number(number)
    }

    fn token(&mut self, name: &str, token: Option<Token>) -> &mut Self {
        if let Some(token) = token {
            self.option(name, token.get());
        }
        self
    }
}

fn line(out: &mut Vec<u8>, kind: u8, number: usize) {
    let digit = |n: usize| b'0' + n as u8;
    match (number / 10, number % 10) {
        // Most are that short; digit by digit they were a tenth of what an acquisition computes.
        (0, one) => out.extend_from_slice(&[kind, digit(one), b'\r', b'\n']),
        (ten @ 1..10, one) => {
            out.extend_from_slice(&[kind, digit(ten), digit(one), b'\r', b'\n']);
        }
        _ => {
            let (digits, first) = decimal(number as u64);
            out.push(kind);
            out.extend_from_slice(&digits[first..]);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// The digits of a number, and where in the array they begin.
fn decimal(mut number: u64) -> ([u8; 20], usize) {
    let mut digits = [b'0'; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return (digits, first);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::proto::reply::{Reply, parse};

    /// A command as a person would type it.
    fn text(command: Command<'_>) -> String {
        let mut out = Vec::new();
        command.encode(&mut out);
        let Ok(Some((Reply::Array(args), used))) = parse(&out) else {
            panic!("{out:?}");
        };
        assert_eq!(used, out.len());
        let words = args.into_iter().map(|arg| match arg {
            Reply::Text(bytes) => String::from_utf8(bytes).unwrap(),
            other => panic!("{other:?}"),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_command_says_what_it_means_so_that_sending_it_twice_changes_nothing() {
        let who = (b"k".as_slice(), b"o".as_slice());
        let lease = Lease::new(Duration::from_secs(1)).unwrap();
        let token = Token::new(7);
        let some = Some(token);
        let acquire = |mode, fence, upgrade| Verb::Acquire {
            mode,
            lease,
            fence,
            upgrade,
        };
        let of = |verb| text(Command::Of(who, &verb, None));
        assert_eq!(
            of(acquire(Mode::Write, None, None)),
            "LOCK.ACQUIRE k o 1000 HOLDS 1"
        );
        let wait: Option<(u64, &[u8])> = Some((0, b"box"));
        let queue = acquire(Mode::Read, some, some);
        assert_eq!(
            text(Command::Of(who, &queue, wait)),
            "LOCK.RLOCK k o 1000 HOLDS 1 FENCE 7 TOKEN 7 WAIT 0 MAIL box"
        );
        assert_eq!(of(Verb::Release(None)), "LOCK.RELEASE k o ALL");
        assert_eq!(
            of(Verb::Release(Some((Mode::Write, token)))),
            "LOCK.RELEASE k o WRITE HOLDS 0 TOKEN 7"
        );
        assert_eq!(of(Verb::Leave { late: false }), "LOCK.LEAVE k o");
        assert_eq!(of(Verb::Leave { late: true }), "LOCK.LEAVE k o FOR 60000");
        assert_eq!(of(Verb::Renew(lease, some)), "LOCK.RENEW k o 1000 TOKEN 7");
        assert_eq!(of(Verb::Fence(token)), "LOCK.FENCE k o 7");
        let mail = Command::Mail(b"box", Some((3, 4)), 9);
        assert_eq!(text(mail), "LOCK.MAIL box AFTER 3 4 WAIT 9");
        let command = [b"SET".to_vec(), b"x".to_vec(), b"1".to_vec()];
        let guard = Verb::Guard(token, command.into());
        assert_eq!(of(guard), "LOCK.GUARD k o 7 SET x 1");
        assert_eq!(of(Verb::Info), "LOCK.INFO k");
        assert_eq!(text(Command::Top(5)), "LOCK.TOP COUNT 5");
        assert_eq!(text(Command::Plain(&[b"PING"])), "PING");
        let long = [b"x".as_slice(); 12];
        assert_eq!(text(Command::Plain(&long)), ["x"; 12].join(" "));
    }

    #[test]
    fn numbers_are_decimal_to_their_bounds() {
        for number in [0, 9, 10, u64::MAX] {
            let (digits, first) = decimal(number);
            assert_eq!(digits[first..], *number.to_string().as_bytes());
        }
        for number in [0, 9, 10, 99, 100, 12_345] {
            let mut out = Vec::new();
            line(&mut out, b'$', number);
            assert_eq!(out, format!("${number}\r\n").into_bytes());
        }
    }
}
