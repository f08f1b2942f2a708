//! Arguments, taken one by one. Every refusal names the argument and its bounds.

use mortise_core::{Count, KeyList, Lease, OwnerRef, Token, WaiterId};

use crate::config;
use crate::decimal;
use crate::error::Error;
use crate::ffi::{Arg, Args, Context};

/// The largest wait: 2^53 milliseconds.
const LONGEST_WAIT: u64 = 1 << 53;

/// The longest name of a box, in bytes.
const LONGEST_BOX: usize = 64;

/// The longest time for which an owner that has left stays away, in milliseconds.
const LONGEST_STAY: u64 = 600_000;

/// A cursor over the arguments of a command.
#[derive(Debug)]
pub(crate) struct Parse<'c> {
    args: Args<'c>,
    next: usize,
    max_lease: u64,
}

impl<'c> Parse<'c> {
    /// Behind the command's name.
    pub(crate) fn new(ctx: &Context<'_>, args: Args<'c>) -> Self {
        Self {
            args,
            next: 1,
            max_lease: config::max_lease(ctx),
        }
    }

    fn take(&mut self) -> Option<Arg<'c>> {
        let arg = self.args.get(self.next)?;
        self.next += 1;
        Some(arg)
    }

    /// The next argument, which has to be there. (`ok_or` would build the error even when there is an argument.)
    fn required(&mut self) -> Result<Arg<'c>, Error> {
        match self.take() {
            Some(arg) => Ok(arg),
            None => Err(Error::Arity),
        }
    }

    pub(crate) fn key(&mut self) -> Result<Arg<'c>, Error> {
        self.required()
    }

    /// How many keys, and so many keys, each once.
    pub(crate) fn keys(&mut self) -> Result<Vec<Arg<'c>>, Error> {
        let arg = self.required()?;
        let number = within(arg, "numkeys", 1, KeyList::MOST as u64)? as usize;
        let given = self.args.len() - self.next;
        if number > given {
            return Err(bounds(
                arg,
                "numkeys",
                format!("at most {given}, because so many arguments follow"),
            ));
        }
        let mut keys: Vec<Arg<'c>> = Vec::with_capacity(number);
        for _ in 0..number {
            let key = self.required()?;
            if keys.iter().any(|known| known.bytes() == key.bytes()) {
                return Err(Error::KeyTwice(key.bytes().into()));
            }
            keys.push(key);
        }
        Ok(keys)
    }

    pub(crate) fn owner(&mut self) -> Result<OwnerRef<'c>, Error> {
        owner(self.required()?, "owner")
    }

    pub(crate) fn new_owner(&mut self) -> Result<OwnerRef<'c>, Error> {
        owner(self.required()?, "newowner")
    }

    pub(crate) fn lease(&mut self) -> Result<Lease, Error> {
        let arg = self.required()?;
        let max = self.max_lease;
        within(arg, "lease", 1, max)
            .ok()
            .and_then(Lease::from_millis)
            .ok_or_else(|| {
                bounds(
                    arg,
                    "lease",
                    format!("1 to {max} milliseconds (lock.max-lease)"),
                )
            })
    }

    pub(crate) fn token(&mut self) -> Result<Token, Error> {
        token(self.required()?, "token")
    }

    /// A waiter, by its number.
    pub(crate) fn waiter(&mut self) -> Result<WaiterId, Error> {
        within(self.required()?, "waiter", 0, u64::MAX).map(WaiterId)
    }

    /// All that is left.
    pub(crate) fn rest(self) -> Args<'c> {
        self.args.from(self.next)
    }

    /// The next option, if there is one: its name as it was given.
    pub(crate) fn option(&mut self) -> Option<OptionName<'c>> {
        Some(OptionName(self.take()?.bytes()))
    }

    fn value(&mut self, option: &'static str) -> Result<Arg<'c>, Error> {
        self.take().ok_or(Error::NoValue(option))
    }

    /// The value of WAIT, in milliseconds; 0 for no limit.
    pub(crate) fn wait_into(&mut self, wait: &mut Option<u64>) -> Result<(), Error> {
        once("WAIT", wait)?;
        let value = self.value("WAIT")?;
        *wait = Some(within(value, "WAIT", 0, LONGEST_WAIT)?);
        Ok(())
    }

    /// The value of FENCE or TOKEN.
    pub(crate) fn token_into(
        &mut self,
        option: &'static str,
        slot: &mut Option<Token>,
    ) -> Result<(), Error> {
        once(option, slot)?;
        *slot = Some(token(self.value(option)?, option)?);
        Ok(())
    }

    /// The value of TOKEN, of a command that has no other option.
    pub(crate) fn only_token(&mut self) -> Result<Option<Token>, Error> {
        let mut token = None;
        while let Some(option) = self.option() {
            if !option.is("TOKEN") {
                return Err(option.unknown());
            }
            self.token_into("TOKEN", &mut token)?;
        }
        Ok(token)
    }

    /// The value of HOLDS or LIMIT of a request.
    pub(crate) fn count_of_holds_into(
        &mut self,
        option: &'static str,
        slot: &mut Option<Count>,
    ) -> Result<(), Error> {
        once(option, slot)?;
        let value = self.value(option)?;
        let count = within(value, option, 1, u64::from(Count::MAX.get()))?;
        *slot = Count::new(count as u32);
        Ok(())
    }

    /// The value of HOLDS of a release.
    pub(crate) fn holds_left_into(&mut self, slot: &mut Option<u32>) -> Result<(), Error> {
        once("HOLDS", slot)?;
        let value = self.value("HOLDS")?;
        *slot = Some(within(value, "HOLDS", 0, u64::from(Count::MAX.get()))? as u32);
        Ok(())
    }

    /// The value of COUNT.
    pub(crate) fn count_into(&mut self, slot: &mut Option<usize>) -> Result<(), Error> {
        once("COUNT", slot)?;
        let value = self.value("COUNT")?;
        *slot = Some(within(value, "COUNT", 1, (1 << 31) - 1)? as usize);
        Ok(())
    }

    /// The value of MAIL, or a box's name where it is no option.
    pub(crate) fn mailbox_into(&mut self, slot: &mut Option<&'c [u8]>) -> Result<(), Error> {
        once("MAIL", slot)?;
        *slot = Some(mailbox(self.value("MAIL")?)?);
        Ok(())
    }

    /// The name of a box.
    pub(crate) fn mailbox(&mut self) -> Result<&'c [u8], Error> {
        mailbox(self.required()?)
    }

    /// The value of FOR, in milliseconds.
    pub(crate) fn stay_away_into(&mut self, slot: &mut Option<u64>) -> Result<(), Error> {
        once("FOR", slot)?;
        *slot = Some(within(self.value("FOR")?, "FOR", 1, LONGEST_STAY)?);
        Ok(())
    }

    /// The values of AFTER: a box's `since` and the number of a letter.
    pub(crate) fn after_into(&mut self, slot: &mut Option<(u64, u64)>) -> Result<(), Error> {
        once("AFTER", slot)?;
        let since = within(self.value("AFTER")?, "since", 0, Token::MAX.get())?;
        let number = within(self.value("AFTER")?, "number", 0, Token::MAX.get())?;
        *slot = Some((since, number));
        Ok(())
    }

    /// The value of OWNER.
    pub(crate) fn owner_into(&mut self, slot: &mut Option<OwnerRef<'c>>) -> Result<(), Error> {
        once("OWNER", slot)?;
        *slot = Some(owner(self.value("OWNER")?, "owner")?);
        Ok(())
    }
}

/// The name of an option. Case does not matter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionName<'c>(&'c [u8]);

impl OptionName<'_> {
    pub(crate) fn is(self, name: &str) -> bool {
        self.0.eq_ignore_ascii_case(name.as_bytes())
    }

    pub(crate) fn unknown(self) -> Error {
        Error::UnknownOption(self.0.into())
    }
}

/// An option is given once.
pub(crate) fn once<T>(option: &'static str, slot: &Option<T>) -> Result<(), Error> {
    if slot.is_some() {
        Err(Error::Twice(option))
    } else {
        Ok(())
    }
}

fn bounds(arg: Arg<'_>, argument: &'static str, bounds: String) -> Error {
    Error::Bounds {
        argument,
        bounds,
        got: arg.bytes().into(),
    }
}

fn within(arg: Arg<'_>, argument: &'static str, min: u64, max: u64) -> Result<u64, Error> {
    decimal::parse(arg.bytes())
        .filter(|value| (min..=max).contains(value))
        .ok_or_else(|| bounds(arg, argument, format!("an integer from {min} to {max}")))
}

fn token(arg: Arg<'_>, argument: &'static str) -> Result<Token, Error> {
    decimal::parse(arg.bytes())
        .and_then(Token::new)
        .ok_or_else(|| {
            bounds(
                arg,
                argument,
                format!("an integer from 1 to {} (below 2^53)", Token::MAX.get()),
            )
        })
}

fn owner<'c>(arg: Arg<'c>, argument: &'static str) -> Result<OwnerRef<'c>, Error> {
    OwnerRef::new(arg.bytes()).ok_or_else(|| Error::Bounds {
        argument,
        bounds: format!("1 to {} bytes long", OwnerRef::MAX_LEN),
        got: format!("{} bytes", arg.bytes().len()).into(),
    })
}

fn mailbox(arg: Arg<'_>) -> Result<&[u8], Error> {
    let name = arg.bytes();
    if (1..=LONGEST_BOX).contains(&name.len()) {
        return Ok(name);
    }
    Err(Error::Bounds {
        argument: "box",
        bounds: format!("1 to {LONGEST_BOX} bytes long"),
        got: format!("{} bytes", name.len()).into(),
    })
}
