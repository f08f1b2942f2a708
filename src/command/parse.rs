//! Arguments, taken one by one. Every refusal names the argument and its bounds.

use mortise_core::{Count, KeyList, Lease, OwnerRef, Token, WaiterId};

use crate::config;
use crate::decimal::decimal;
use crate::error::{Error, shown};
use crate::ffi::{Arg, Args, Context};
use crate::time;

/// The largest wait: 2^53 milliseconds.
const LONGEST_WAIT: u64 = 1 << 53;

/// The longest name of a box, in bytes.
const LONGEST_BOX: usize = 64;

/// The longest time for which an owner that has left stays away, in milliseconds.
const LONGEST_STAY: u64 = 600_000;

/// A cursor over the arguments of a command. The server has checked how many there are.
#[derive(Debug)]
pub(crate) struct Parse<'c> {
    args: Args<'c>,
    next: usize,
    max_lease: u64,
}

impl<'c> Parse<'c> {
    /// Behind the command's name.
    pub(crate) fn new(args: Args<'c>) -> Self {
        Self {
            args,
            next: 1,
            max_lease: config::MAX_LEASE.get(),
        }
    }

    /// Behind the name of a command that changes something.
    ///
    /// # Errors
    /// [`Error::READ_ONLY`] on a replica. The server replies that itself unless the replica is writable.
    pub(crate) fn of_change(ctx: &Context<'_>, args: Args<'c>) -> Result<Self, Error> {
        match time::is_primary(ctx) {
            true => Ok(Self::new(args)),
            false => Err(Error::READ_ONLY),
        }
    }

    /// The next argument, which is the value of `name`. (`ok_or` would build the error even when there is an argument.)
    #[inline]
    fn take(&mut self, name: &'static str) -> Result<Arg<'c>, Error> {
        match self.args.get(self.next) {
            Some(arg) => {
                self.next += 1;
                Ok(arg)
            }
            None => Err(no_value(name)),
        }
    }

    /// All that is left.
    pub(crate) fn rest(self) -> Args<'c> {
        self.args.from(self.next)
    }

    /// Takes options until none is left. `take` tries those that the command has, and returns whether the next argument was one.
    ///
    /// # Errors
    /// An unknown option, and those of `take`.
    pub(crate) fn options(
        &mut self,
        mut take: impl FnMut(&mut Self) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        while let Some(next) = self.args.get(self.next) {
            if !take(self)? {
                let option = shown(next.bytes());
                return Err(Error::syntax(&format!("unknown option {option}")));
            }
        }
        Ok(())
    }

    /// Takes the option `name`, whose case does not matter, and reads its value. Returns whether it comes next.
    ///
    /// # Errors
    /// The option was given already, and those of `read`.
    pub(crate) fn option<T>(
        &mut self,
        name: &'static str,
        value: &mut Option<T>,
        read: impl FnOnce(&mut Self, &'static str) -> Result<T, Error>,
    ) -> Result<bool, Error> {
        let next = self.args.get(self.next).map(Arg::bytes);
        if !next.is_some_and(|next| next.eq_ignore_ascii_case(name.as_bytes())) {
            return Ok(false);
        }
        if value.is_some() {
            return Err(Error::syntax(&format!("option {name} given twice")));
        }
        self.next += 1;
        *value = Some(read(self, name)?);
        Ok(true)
    }

    /// Takes the option `name`, which has no value.
    ///
    /// # Errors
    /// The option was given already.
    pub(crate) fn flag(
        &mut self,
        name: &'static str,
        is_given: &mut Option<()>,
    ) -> Result<bool, Error> {
        self.option(name, is_given, |_, _| Ok(()))
    }

    /// Takes the only option of a command, `TOKEN`.
    pub(crate) fn only_token(&mut self) -> Result<Option<Token>, Error> {
        let mut token = None;
        self.options(|parse| parse.option("TOKEN", &mut token, Self::token))?;
        Ok(token)
    }

    fn number(&mut self, name: &'static str, min: u64, max: u64) -> Result<u64, Error> {
        within(self.take(name)?, name, min, max)
    }
}

/// The values of arguments and options.
impl<'c> Parse<'c> {
    pub(crate) fn key(&mut self) -> Result<Arg<'c>, Error> {
        self.take("key")
    }

    /// How many keys, and so many keys, each once.
    pub(crate) fn keys(&mut self) -> Result<Vec<Arg<'c>>, Error> {
        let given = self.args.get(self.next);
        let number = self.number("numkeys", 1, KeyList::MOST as u64)? as usize;
        let left = self.args.len() - self.next;
        if let Some(arg) = given.filter(|_| number > left) {
            let most = format!("at most {left}, because so many arguments follow");
            return Err(bounds(arg, "numkeys", &most));
        }
        let mut keys: Vec<Arg<'c>> = Vec::with_capacity(number);
        for _ in 0..number {
            let key = self.key()?;
            if keys.iter().any(|known| known.bytes() == key.bytes()) {
                let key = shown(key.bytes());
                return Err(Error::new(format!("ERR key {key} is named twice")));
            }
            keys.push(key);
        }
        Ok(keys)
    }

    #[inline]
    pub(crate) fn owner(&mut self, name: &'static str) -> Result<OwnerRef<'c>, Error> {
        let arg = self.take(name)?;
        OwnerRef::new(arg.bytes()).ok_or_else(|| wrong_length(arg, name, OwnerRef::MAX_LEN))
    }

    #[inline]
    pub(crate) fn lease(&mut self) -> Result<Lease, Error> {
        let (arg, max) = (self.take("lease")?, self.max_lease);
        let lease = decimal(arg.bytes()).filter(|lease| (1..=max).contains(lease));
        lease.and_then(Lease::from_millis).ok_or_else(|| {
            let range = format!("1 to {max} milliseconds (lock.max-lease)");
            bounds(arg, "lease", &range)
        })
    }

    pub(crate) fn token(&mut self, name: &'static str) -> Result<Token, Error> {
        let arg = self.take(name)?;
        let token = decimal(arg.bytes()).and_then(Token::new);
        token.ok_or_else(|| {
            let range = format!("an integer from 1 to {} (below 2^53)", Token::MAX.get());
            bounds(arg, name, &range)
        })
    }

    /// In milliseconds; 0 for no limit.
    pub(crate) fn wait(&mut self, name: &'static str) -> Result<u64, Error> {
        self.number(name, 0, LONGEST_WAIT)
    }

    /// HOLDS or LIMIT of a request.
    pub(crate) fn count(&mut self, name: &'static str) -> Result<Count, Error> {
        let count = self.number(name, 1, u64::from(Count::MAX.get()))?;
        Count::new(count as u32).ok_or(Error::BUG)
    }

    /// HOLDS of a release.
    pub(crate) fn count_left(&mut self, name: &'static str) -> Result<u32, Error> {
        let count = self.number(name, 0, u64::from(Count::MAX.get()))?;
        Ok(count as u32)
    }

    /// How many entries are shown.
    pub(crate) fn shown(&mut self, name: &'static str) -> Result<usize, Error> {
        Ok(self.number(name, 1, (1 << 31) - 1)? as usize)
    }

    /// The name of a box.
    pub(crate) fn mailbox(&mut self, name: &'static str) -> Result<&'c [u8], Error> {
        let arg = self.take(name)?;
        let name = arg.bytes();
        let fits = (1..=LONGEST_BOX).contains(&name.len());
        fits.then_some(name)
            .ok_or_else(|| wrong_length(arg, "box", LONGEST_BOX))
    }

    /// For how long an owner stays away, in milliseconds.
    pub(crate) fn stay(&mut self, name: &'static str) -> Result<u64, Error> {
        self.number(name, 1, LONGEST_STAY)
    }

    /// A box's `since` and the number of a letter.
    pub(crate) fn after(&mut self, name: &'static str) -> Result<(u64, u64), Error> {
        let (since, number) = (self.take(name)?, self.take(name)?);
        let most = Token::MAX.get();
        Ok((
            within(since, "since", 0, most)?,
            within(number, "number", 0, most)?,
        ))
    }

    /// A waiter, by its number.
    pub(crate) fn waiter(&mut self) -> Result<WaiterId, Error> {
        self.number("waiter", 0, u64::MAX).map(WaiterId)
    }
}

fn within(arg: Arg<'_>, name: &'static str, min: u64, max: u64) -> Result<u64, Error> {
    decimal(arg.bytes())
        .filter(|value| (min..=max).contains(value))
        .ok_or_else(|| bounds(arg, name, &format!("an integer from {min} to {max}")))
}

#[cold]
fn no_value(option: &'static str) -> Error {
    Error::syntax(&format!("option {option} needs a value"))
}

#[cold]
fn bounds(arg: Arg<'_>, argument: &'static str, bounds: &str) -> Error {
    Error::bounds(argument, bounds, arg.bytes())
}

#[cold]
fn wrong_length(arg: Arg<'_>, argument: &'static str, longest: usize) -> Error {
    let bounds = format!("1 to {longest} bytes long");
    let got = format!("{} bytes", arg.bytes().len());
    Error::bounds(argument, &bounds, got.as_bytes())
}
