//! Commands as they are sent. Each says what it means, so that sending it twice changes nothing.

use std::sync::Arc;

use crate::value::{BootInstant, Error, Lease, Mode, Token};

/// A key, or several, and the name of one acquisition.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    pub(crate) key: Arc<[u8]>,
    pub(crate) owner: Arc<[u8]>,
    /// All keys, if they are several: `key` is the first.
    pub(crate) keys: Option<Arc<[Arc<[u8]>]>>,
}

impl Name {
    pub(crate) fn new(key: Arc<[u8]>, owner: Arc<[u8]>) -> Name {
        let keys = None;
        Name { key, owner, keys }
    }

    /// The same name at each of its keys.
    pub(crate) fn each(&self) -> impl Iterator<Item = Name> + '_ {
        let keys = self.keys.as_deref();
        let keys = keys.unwrap_or(std::slice::from_ref(&self.key));
        keys.iter()
            .map(|key| Name::new(key.clone(), self.owner.clone()))
    }

    /// A key, for commands that concern no owner.
    pub(crate) fn of_key(key: &[u8]) -> Name {
        Name::new(key.into(), Arc::default())
    }
}

/// What to take a lock by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acquire {
    pub(crate) mode: Mode,
    pub(crate) lease: Lease,
    /// How many permits, and of how many in all; otherwise the lock itself.
    pub(crate) permits: Option<Permits>,
    /// The token granted is to be at least that.
    pub(crate) fence: Option<Token>,
    /// Only upgrades a hold of this token, and never makes a new one.
    pub(crate) upgrades: Option<Token>,
}

/// A share of a lock that is read by a limited number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Permits {
    pub(super) count: u32,
    pub(super) limit: u32,
}

impl Permits {
    pub(crate) fn new(count: u32, limit: u32) -> Result<Permits, Error> {
        const MOST: u32 = i32::MAX as u32;
        match (1..=limit).contains(&count) && limit <= MOST {
            true => Ok(Permits { count, limit }),
            false => Err(Error::Invalid(format!(
                "permits are at least one and no more than the limit, which is at most {MOST}: not {count} of {limit}"
            ))),
        }
    }
}

/// What is asked for a name.
#[derive(Debug, Clone)]
pub(crate) enum Verb {
    Acquire(Acquire),
    /// Gives back the whole hold, of this token if one is named.
    Release(Option<Token>),
    /// Lowers how often a hold of this token writes: to zero, which makes a writer a reader.
    LowerWrites {
        to: u32,
        token: Token,
    },
    /// Removes whatever the name has or wants.
    Leave,
    /// The same, and bars what arrives late.
    LeaveForGood,
    Renew(Lease, Option<Token>),
    Fence(Token),
    /// Runs a command if the hold is there, by this token.
    Guard(Token, Arc<[Vec<u8>]>),
    /// Transfers the hold of this token to another name, for this lease.
    Pass {
        new_owner: Arc<[u8]>,
        lease: Lease,
        token: Token,
    },
    /// Transfers the hold of this token from another name to this one.
    TakeOver {
        owner: Arc<[u8]>,
        lease: Lease,
        token: Token,
    },
    /// Lets the hold of the name end with its lease.
    Revoke,
    /// The holders of the key, and the waiters.
    Info,
}

impl Verb {
    /// Until when a hold may be believed in that was granted, or renewed, by what was sent then.
    pub(crate) fn believed_until(&self, sent: BootInstant) -> BootInstant {
        match self {
            Verb::Acquire(Acquire { lease, .. })
            | Verb::Renew(lease, _)
            | Verb::Pass { lease, .. }
            | Verb::TakeOver { lease, .. } => lease.believed_until(sent),
            _ => sent,
        }
    }
}

/// Where and how long a request waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitByMail<'a> {
    /// In milliseconds, 0 without limit.
    pub(crate) limit: u64,
    pub(crate) mailbox: &'a [u8],
}

/// A command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Command<'a> {
    Lock {
        name: &'a Name,
        verb: &'a Verb,
        wait: Option<WaitByMail<'a>>,
    },
    /// Collects letters, and forgets those that were read.
    Mail {
        mailbox: &'a [u8],
        read: Option<LastRead>,
        /// In milliseconds.
        wait: u64,
    },
    Top(usize),
    /// Any other.
    Plain(&'a [&'a [u8]]),
}

/// The last letter that was read, of the box that was made with this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastRead {
    pub(crate) since: u64,
    pub(crate) number: u64,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_grants_or_renews_is_believed_in_for_its_lease_and_nothing_else_is() {
        let (sent, lease) = (BootInstant::now(), Lease::new(Duration::from_secs(9)));
        let lease = lease.unwrap();
        let until = Verb::Renew(lease, None).believed_until(sent);
        assert_eq!(until, lease.believed_until(sent));
        assert!(until > sent);
        assert_eq!(Verb::Info.believed_until(sent), sent);
    }
}
