//! Commands as they go over the wire: arrays of bulk strings (RESP2), appended to a connection's buffer without an allocation.

use crate::value::{Lease, Token};
use crate::wire::command::Acquire;
use crate::wire::{Command, Name, Verb};

/// How long a name that may still be used by something late is barred, in milliseconds.
const STAY_AWAY: u64 = 60_000;

impl Command<'_> {
    /// Appends it as it goes over the wire.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut args = Args { out, count: 0 };
        match *self {
            Command::Lock { name, verb, wait } => {
                args.verb(name, verb);
                if let Some(wait) = wait {
                    args.option("WAIT", wait.limit)
                        .text("MAIL")
                        .bytes(wait.mailbox);
                }
            }
            Command::Mail {
                mailbox,
                read,
                wait,
            } => {
                args.text("LOCK.MAIL").bytes(mailbox);
                if let Some(read) = read {
                    args.option("AFTER", read.since).number(read.number);
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
    fn verb(&mut self, name: &Name, verb: &Verb) {
        match *verb {
            Verb::Acquire(acquire) => self.acquire(name, &acquire),
            Verb::Release(token) => {
                self.text("LOCK.RELEASE").name(name).text("ALL");
                self.token("TOKEN", token);
            }
            Verb::LowerWrites { to, token } => {
                self.text("LOCK.RELEASE").name(name).text("WRITE");
                self.option("HOLDS", to.into()).token("TOKEN", Some(token));
            }
            Verb::Leave => _ = self.text("LOCK.LEAVE").name(name),
            Verb::LeaveForGood => {
                self.text("LOCK.LEAVE").name(name).option("FOR", STAY_AWAY);
            }
            Verb::Renew(lease, token) => {
                self.text("LOCK.RENEW").name(name);
                self.number(lease.as_millis()).token("TOKEN", token);
            }
            Verb::Fence(token) => _ = self.text("LOCK.FENCE").name(name).number(token.get()),
            Verb::Guard(token, ref command) => {
                self.text("LOCK.GUARD").name(name).number(token.get());
                self.all(command);
            }
            Verb::Pass {
                ref new_owner,
                lease,
                token,
            } => self.pass([&name.key, &name.owner, new_owner], lease, token),
            Verb::TakeOver {
                ref owner,
                lease,
                token,
            } => self.pass([&name.key, owner, &name.owner], lease, token),
            Verb::Revoke => _ = self.text("LOCK.REVOKE").name(name),
            Verb::Info => _ = self.text("LOCK.INFO").bytes(&name.key),
        }
    }

    /// The names: key, owner, new owner.
    fn pass(&mut self, names: [&[u8]; 3], lease: Lease, token: Token) {
        self.text("LOCK.PASS").all(&names);
        self.number(lease.as_millis()).token("TOKEN", Some(token));
    }

    fn acquire(&mut self, name: &Name, acquire: &Acquire) {
        if let Some(keys) = &name.keys {
            self.text("LOCK.MACQUIRE").bytes(&name.owner);
            self.number(acquire.lease.as_millis());
            return self.number(keys.len() as u64).all(keys);
        }
        let holds = acquire.permits.map_or(1, |permits| permits.count);
        self.text(acquire.mode.command()).name(name);
        self.number(acquire.lease.as_millis());
        self.option("HOLDS", holds.into());
        if let Some(permits) = acquire.permits {
            self.option("LIMIT", permits.limit.into());
        }
        self.token("FENCE", acquire.fence);
        self.token("TOKEN", acquire.upgrades);
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

    fn name(&mut self, name: &Name) -> &mut Self {
        self.bytes(&name.key).bytes(&name.owner)
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
        // Most numbers are this short. Written digit by digit, they took a tenth of an acquisition's computation.
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
    use crate::value::Mode;
    use crate::wire::WaitByMail;
    use crate::wire::command::{LastRead, Permits};
    use crate::wire::reply::{Reply, parse};

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
    fn every_command_is_encoded_so_that_sending_it_twice_changes_nothing() {
        let name = Name::new(b"k".as_slice().into(), b"o".as_slice().into());
        let lease = Lease::new(Duration::from_secs(1)).unwrap();
        let token = Token::new(7);
        let some = Some(token);
        let plain = Acquire {
            mode: Mode::Write,
            lease,
            permits: None,
            fence: None,
            upgrades: None,
        };
        let sent = |verb: &Verb, wait| {
            text(Command::Lock {
                name: &name,
                verb,
                wait,
            })
        };
        let of = |verb| sent(&verb, None);
        assert_eq!(of(Verb::Acquire(plain)), "LOCK.ACQUIRE k o 1000 HOLDS 1");
        let keys = [b"k".as_slice().into(), b"l".as_slice().into()];
        let several = Name {
            keys: Some(keys.into()),
            ..name.clone()
        };
        let wait = Some(WaitByMail {
            limit: 5,
            mailbox: b"box",
        });
        let all = Command::Lock {
            name: &several,
            verb: &Verb::Acquire(plain),
            wait,
        };
        let wanted = "LOCK.MACQUIRE o 1000 2 k l WAIT 5 MAIL box";
        assert_eq!(text(all), wanted);
        let queued = Acquire {
            mode: Mode::Read,
            fence: some,
            upgrades: some,
            ..plain
        };
        let wait = WaitByMail {
            limit: 0,
            mailbox: b"box",
        };
        assert_eq!(
            sent(&Verb::Acquire(queued), Some(wait)),
            "LOCK.RLOCK k o 1000 HOLDS 1 FENCE 7 TOKEN 7 WAIT 0 MAIL box"
        );
        let permits = Permits::new(3, 9).ok();
        let shared = Acquire {
            mode: Mode::Read,
            permits,
            ..plain
        };
        assert_eq!(
            of(Verb::Acquire(shared)),
            "LOCK.RLOCK k o 1000 HOLDS 3 LIMIT 9"
        );
        assert_eq!(of(Verb::Release(None)), "LOCK.RELEASE k o ALL");
        let by_token = of(Verb::Release(some));
        assert_eq!(by_token, "LOCK.RELEASE k o ALL TOKEN 7");
        assert_eq!(
            of(Verb::LowerWrites { to: 0, token }),
            "LOCK.RELEASE k o WRITE HOLDS 0 TOKEN 7"
        );
        assert_eq!(of(Verb::Leave), "LOCK.LEAVE k o");
        assert_eq!(of(Verb::LeaveForGood), "LOCK.LEAVE k o FOR 60000");
        assert_eq!(of(Verb::Renew(lease, some)), "LOCK.RENEW k o 1000 TOKEN 7");
        assert_eq!(of(Verb::Fence(token)), "LOCK.FENCE k o 7");
        let new_owner = b"p".as_slice().into();
        let pass = Verb::Pass {
            new_owner,
            lease,
            token,
        };
        assert_eq!(of(pass), "LOCK.PASS k o p 1000 TOKEN 7");
        let taking_over = Verb::TakeOver {
            owner: b"p".as_slice().into(),
            lease,
            token,
        };
        assert_eq!(of(taking_over), "LOCK.PASS k p o 1000 TOKEN 7");
        assert_eq!(of(Verb::Revoke), "LOCK.REVOKE k o");
        let mail = Command::Mail {
            mailbox: b"box",
            read: Some(LastRead {
                since: 3,
                number: 4,
            }),
            wait: 9,
        };
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
    fn numbers_are_encoded_in_decimal_up_to_their_bounds() {
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
