//! Acquiring over a quorum: in rounds, each under a name of its own. All servers are asked at once, a majority decides, and a
//! round that fails is left everywhere. Where others hold the lock clients queue, on the first of the servers that answers: in the
//! order of the servers' identities, whatever order the client lists them in.

use std::sync::Arc;
use std::time::Duration;

use crate::core::Core;
use crate::error::Error;
use crate::guard::Guard;
use crate::name::{Bytes, Names, random_uuid};
use crate::quorum::round::Round;
use crate::request::Terms;
use crate::retry::Tries;
use crate::time::BootInstant;

/// A server may take this part of a lease to answer.
const SHARE: u32 = 4;

/// Acquires a lock from a majority: tries until it is granted, or the wait is over.
pub(crate) async fn acquire(
    core: &Arc<Core>,
    names: &Names,
    keys: &Arc<[Bytes]>,
    terms: &Terms,
) -> Result<Guard, Error> {
    check(core, terms)?;
    let mut queues_on = None;
    let tries = Tries::new(terms.wait, BootInstant::now());
    loop {
        core.check_open()?;
        let began = BootInstant::now();
        let mut round = Round::new(core, keys, names.next(), terms);
        let waits: Option<usize> = queues_on.take();
        let won = match waits {
            None => round.ask_all().await,
            Some(first) => round.queue(first, tries.to_queue(began).unwrap_or(1)).await,
        };
        core.check_open()?;
        let now = BootInstant::now();
        let is_over = tries.is_over(now);
        let has_waited = waits.is_some();
        let back_off = back_off(now.since(began));
        let pause = match won {
            Some(token) => match round.won(token).await {
                Ok(guard) => return Ok(guard),
                Err(error) if is_over => return Err(error),
                Err(_) => back_off,
            },
            None if round.ballot.is_refused() => {
                return Err(round.ballot.no_quorum(core.settings.reply));
            }
            None if is_over && (has_waited || round.ballot.has_answer()) => {
                return Err(tries.busy(now));
            }
            None if is_over => return Err(round.ballot.no_quorum(core.settings.reply)),
            None if has_waited => back_off,
            None if !round.ballot.has_answer() => back_off.max(UNREACHED_PAUSE),
            None => {
                queues_on = round.ballot.first_to_queue_on();
                queues_on.map_or(back_off, |_| Duration::ZERO)
            }
        };
        core.pause(pause.min(tries.left(now))).await;
    }
}

/// Servers that were lost are connected to again by then, if they are there.
const UNREACHED_PAUSE: Duration = Duration::from_millis(150);

/// A pause of a random length, about as long as a round takes.
fn back_off(took: Duration) -> Duration {
    let took = took.clamp(Duration::from_millis(2), Duration::from_millis(200));
    let chance = f64::from(random_uuid().as_u128() as u32) / f64::from(u32::MAX);
    took + took.mul_f64(chance)
}

/// A lease must not run out while servers answer.
fn check(core: &Core, terms: &Terms) -> Result<(), Error> {
    let (limit, lease) = (core.settings.reply, terms.lease.duration());
    match limit.saturating_mul(SHARE) > lease {
        false => Ok(()),
        true => Err(Error::Invalid(format!(
            "a lease over a quorum is at least {SHARE} times what one server may take to answer, {limit:?}, not {lease:?}"
        ))),
    }
}
