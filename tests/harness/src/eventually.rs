//! Waits for conditions that no event announces, by checking them repeatedly.

use std::env;
use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

use crate::valgrind;

/// How long [`eventually`] tries.
const PATIENCE: Duration = Duration::from_secs(30);
/// The first pause; each next one is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// A check that takes longer counts as this: the machine may have stood still, and with it what the test waits for.
const LONGEST_CHECK: Duration = Duration::from_secs(2);

/// The result of one check of a condition.
///
/// `Option` says only whether; `Result` also says, in its error, what was seen instead; `bool` yields `()`.
pub trait Attempt {
    /// The value of a check that succeeded.
    type Value;

    /// The value, or what was seen instead.
    fn outcome(self) -> Result<Self::Value, String>;
}

impl<T> Attempt for Option<T> {
    type Value = T;

    fn outcome(self) -> Result<T, String> {
        self.ok_or_else(|| "None".to_owned())
    }
}

impl<T, E: Debug> Attempt for Result<T, E> {
    type Value = T;

    fn outcome(self) -> Result<T, String> {
        self.map_err(|seen| format!("{seen:?}"))
    }
}

impl Attempt for bool {
    type Value = ();

    fn outcome(self) -> Result<(), String> {
        if self {
            Ok(())
        } else {
            Err("false".to_owned())
        }
    }
}

/// Checks a condition until it is true, for up to 30 seconds.
///
/// Only for events that nothing announces; a blocked command's reply is awaited with [`Conn::recv`](crate::Conn::recv).
///
/// # Panics
/// With `what` and the last check, if the condition does not come true.
#[track_caller]
pub fn eventually<A: Attempt>(what: &str, look: impl FnMut() -> A) -> A::Value {
    eventually_within(PATIENCE, what, look)
}

/// The same, for what may take longer.
///
/// # Panics
/// With `what` and the last check, if the condition does not come true.
#[track_caller]
pub fn eventually_within<A: Attempt>(
    patience: Duration,
    what: &str,
    look: impl FnMut() -> A,
) -> A::Value {
    let patience = valgrind::patience(patience);
    match within(patience, look) {
        Ok(value) => value,
        Err(seen) => panic!("waited {patience:?} in vain until {what}; the last check: {seen}"),
    }
}

/// Checks a condition until it is true or `patience` is over; the error is the last check's.
pub(crate) fn within<A: Attempt>(
    patience: Duration,
    mut look: impl FnMut() -> A,
) -> Result<A::Value, String> {
    let (mut spent, mut pause) = (Duration::ZERO, FIRST_PAUSE);
    loop {
        let began = Instant::now();
        match look().outcome() {
            Ok(value) => return Ok(value),
            Err(seen) if spent >= patience => return Err(seen),
            Err(_) => {
                thread::sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        spent += began.elapsed().min(LONGEST_CHECK);
    }
}

/// Whether `MORTISE_LONG` is set, with which random tests run longer.
pub fn is_long_run() -> bool {
    env::var_os("MORTISE_LONG").is_some()
}
