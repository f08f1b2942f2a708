//! Commands as they are sent. Each says what it means, so that sending it twice changes nothing.

use crate::value::lease::Lease;
use crate::value::mode::Mode;
use crate::value::token::Token;

/// How long a name that is left stays away: longer than anything late is on its way.
pub(crate) const STAY_AWAY: u64 = 60_000;

/// A lock and who asks for it.
pub(crate) type Who<'a> = (&'a [u8], &'a [u8]);

/// A command of the wire contract.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Command<'a> {
    /// Leaves the count of the mode at one, however often it is sent.
    Acquire {
        who: Who<'a>,
        mode: Mode,
        lease: Lease,
        wait: Option<Wait<'a>>,
        /// The least token to be granted.
        fence: Option<Token>,
        /// Only to add to a hold by this token or a later one.
        upgrade: Option<Token>,
    },
    /// Ends the whole hold.
    Release {
        who: Who<'a>,
        token: Option<Token>,
    },
    /// Ends one mode of a hold that has both.
    ReleaseMode {
        who: Who<'a>,
        mode: Mode,
        token: Token,
    },
    /// Ends whatever there is under this name; `late`: and whatever arrives of it from now on.
    Leave {
        who: Who<'a>,
        late: bool,
    },
    Renew {
        who: Who<'a>,
        lease: Lease,
        token: Option<Token>,
    },
    /// Raises the hold's token.
    Fence {
        who: Who<'a>,
        token: Token,
    },
    /// Runs a command if the hold is there by this token.
    Guard {
        who: Who<'a>,
        token: Token,
        command: &'a [Vec<u8>],
    },
    /// Collects letters: forgets those up to a number, and waits so many milliseconds for others.
    Mail {
        mailbox: &'a [u8],
        after: Option<(u64, u64)>,
        wait: u64,
    },
    Info {
        key: &'a [u8],
    },
    /// The one command without a key.
    Top {
        count: usize,
    },
    /// Anything else, about no key.
    Plain(&'a [&'a [u8]]),
}

/// To wait in the queue, by mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait<'a> {
    /// In milliseconds; 0 is without limit, as on the wire.
    pub(crate) limit: u64,
    pub(crate) mailbox: &'a [u8],
}

#[derive(Debug, Clone, Copy)]
enum Arg<'a> {
    Bytes(&'a [u8]),
    Number(u64),
}

impl<'a> From<&'a str> for Arg<'a> {
    fn from(text: &'a str) -> Arg<'a> {
        Arg::Bytes(text.as_bytes())
    }
}

/// As many as the longest command has, those it wraps aside.
const MOST: usize = 16;

struct Args<'a> {
    args: [Arg<'a>; MOST],
    count: usize,
}

impl<'a> Args<'a> {
    fn of(name: &'a str) -> Args<'a> {
        let mut args = Args {
            args: [Arg::Number(0); MOST],
            count: 0,
        };
        args.add(name.into());
        args
    }

    fn add(&mut self, arg: Arg<'a>) -> &mut Args<'a> {
        self.args[self.count] = arg;
        self.count += 1;
        self
    }

    fn who(&mut self, (key, owner): Who<'a>) -> &mut Args<'a> {
        self.add(Arg::Bytes(key)).add(Arg::Bytes(owner))
    }

    fn number(&mut self, number: u64) -> &mut Args<'a> {
        self.add(Arg::Number(number))
    }

    fn option(&mut self, name: &'a str, value: Arg<'a>) -> &mut Args<'a> {
        self.add(name.into()).add(value)
    }

    fn token(&mut self, name: &'a str, token: Option<Token>) -> &mut Args<'a> {
        if let Some(token) = token {
            self.option(name, Arg::Number(token.get()));
        }
        self
    }
}

impl<'a> Command<'a> {
    /// The key that it is about, by which a cluster routes it.
    pub(crate) fn key(&self) -> Option<&'a [u8]> {
        match *self {
            Command::Acquire { who, .. }
            | Command::Release { who, .. }
            | Command::ReleaseMode { who, .. }
            | Command::Leave { who, .. }
            | Command::Renew { who, .. }
            | Command::Fence { who, .. }
            | Command::Guard { who, .. } => Some(who.0),
            Command::Mail { mailbox, .. } => Some(mailbox),
            Command::Info { key } => Some(key),
            Command::Top { .. } | Command::Plain(_) => None,
        }
    }

    /// Appends it as it is on the wire (RESP).
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let rest = match *self {
            Command::Guard { command, .. } => command,
            _ => &[],
        };
        let args = self.args();
        let plain: &[&[u8]] = match *self {
            Command::Plain(args) => args,
            _ => &[],
        };
        array(out, args.count + rest.len() + plain.len());
        for arg in &args.args[..args.count] {
            match *arg {
                Arg::Bytes(bytes) => bulk(out, bytes),
                Arg::Number(number) => {
                    let (digits, first) = decimal(number);
                    bulk(out, &digits[first..]);
                }
            }
        }
        rest.iter().for_each(|arg| bulk(out, arg));
        plain.iter().for_each(|arg| bulk(out, arg));
    }

    fn args(&self) -> Args<'a> {
        match *self {
            Command::Acquire {
                who,
                mode,
                lease,
                wait,
                fence,
                upgrade,
            } => {
                let mut args = Args::of(mode.command());
                args.who(who).number(lease.as_millis());
                args.option("HOLDS", Arg::Number(1));
                if let Some(wait) = wait {
                    args.option("WAIT", Arg::Number(wait.limit))
                        .option("MAIL", Arg::Bytes(wait.mailbox));
                }
                args.token("FENCE", fence).token("TOKEN", upgrade);
                args
            }
            Command::Release { who, token } => {
                let mut args = Args::of("LOCK.RELEASE");
                args.who(who).add("ALL".into()).token("TOKEN", token);
                args
            }
            Command::ReleaseMode { who, mode, token } => {
                let mut args = Args::of("LOCK.RELEASE");
                args.who(who).add(mode.option().into());
                args.option("HOLDS", Arg::Number(0))
                    .token("TOKEN", Some(token));
                args
            }
            Command::Leave { who, late } => {
                let mut args = Args::of("LOCK.LEAVE");
                args.who(who);
                if late {
                    args.option("FOR", Arg::Number(STAY_AWAY));
                }
                args
            }
            Command::Renew { who, lease, token } => {
                let mut args = Args::of("LOCK.RENEW");
                args.who(who)
                    .number(lease.as_millis())
                    .token("TOKEN", token);
                args
            }
            Command::Fence { who, token } => {
                let mut args = Args::of("LOCK.FENCE");
                args.who(who).number(token.get());
                args
            }
            Command::Guard { who, token, .. } => {
                let mut args = Args::of("LOCK.GUARD");
                args.who(who).number(token.get());
                args
            }
            Command::Mail {
                mailbox,
                after,
                wait,
            } => {
                let mut args = Args::of("LOCK.MAIL");
                args.add(Arg::Bytes(mailbox));
                if let Some((since, number)) = after {
                    args.option("AFTER", Arg::Number(since)).number(number);
                }
                args.option("WAIT", Arg::Number(wait));
                args
            }
            Command::Info { key } => {
                let mut args = Args::of("LOCK.INFO");
                args.add(Arg::Bytes(key));
                args
            }
            Command::Top { count } => {
                let mut args = Args::of("LOCK.TOP");
                args.option("COUNT", Arg::Number(count as u64));
                args
            }
            Command::Plain(_) => Args {
                args: [Arg::Number(0); MOST],
                count: 0,
            },
        }
    }
}

fn array(out: &mut Vec<u8>, count: usize) {
    out.push(b'*');
    line(out, count);
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'$');
    line(out, bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn line(out: &mut Vec<u8>, number: usize) {
    let (digits, first) = decimal(number as u64);
    out.extend_from_slice(&digits[first..]);
    out.extend_from_slice(b"\r\n");
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
        let acquire = |mode, wait, fence, upgrade| Command::Acquire {
            who,
            mode,
            lease,
            wait,
            fence,
            upgrade,
        };
        assert_eq!(
            text(acquire(Mode::Write, None, None, None)),
            "LOCK.ACQUIRE k o 1000 HOLDS 1"
        );
        let wait = Some(Wait {
            limit: 0,
            mailbox: b"box",
        });
        assert_eq!(
            text(acquire(Mode::Read, wait, Some(token), Some(token))),
            "LOCK.RLOCK k o 1000 HOLDS 1 WAIT 0 MAIL box FENCE 7 TOKEN 7"
        );
        let token = Some(token);
        assert_eq!(
            text(Command::Release { who, token }),
            "LOCK.RELEASE k o ALL TOKEN 7"
        );
        assert_eq!(
            text(Command::Leave { who, late: true }),
            "LOCK.LEAVE k o FOR 60000"
        );
        assert_eq!(
            text(Command::Renew { who, lease, token }),
            "LOCK.RENEW k o 1000 TOKEN 7"
        );
        let (mailbox, after) = (b"box".as_slice(), Some((3, 4)));
        assert_eq!(
            text(Command::Mail {
                mailbox,
                after,
                wait: 9
            }),
            "LOCK.MAIL box AFTER 3 4 WAIT 9"
        );
        let command = [b"SET".to_vec(), b"x".to_vec(), b"1".to_vec()];
        let guard = Command::Guard {
            who,
            token: Token::new(7),
            command: &command,
        };
        assert_eq!(text(guard), "LOCK.GUARD k o 7 SET x 1");
        assert_eq!(text(Command::Plain(&[b"PING"])), "PING");
        assert_eq!(
            (guard.key(), Command::Top { count: 1 }.key()),
            (Some(who.0), None)
        );
    }

    #[test]
    fn numbers_are_decimal_to_their_bounds() {
        for number in [0, 9, 10, u64::MAX] {
            let (digits, first) = decimal(number);
            assert_eq!(digits[first..], *number.to_string().as_bytes());
        }
    }
}
