//! Timers of the server. They compare wall-clock time: what is woken re-checks its deadline.

use std::os::raw::c_void;
use std::ptr;
use std::sync::OnceLock;

use redis_module::raw;

use super::catch::catch;
use super::context::Context;

/// What a timer wakes. Passed as a number, so that no pointer has to be kept alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// Every 100 ms: leases that are over.
    Sweep,
    /// At once: keys that were marked, waiters that were decided.
    EndOfTurn,
    /// When a waiter's time is up, or a lock with waiters loses a hold.
    Due,
    /// Between two slices: work that has no hurry.
    Background,
}

/// What answers alarms, see [`answer_with`].
static ANSWER: OnceLock<fn(&Context<'_>, Alarm)> = OnceLock::new();

/// At load time: every alarm is answered by `answer`.
pub(super) fn answer_with(answer: fn(&Context<'_>, Alarm)) {
    ANSWER.get_or_init(|| answer);
}

/// A timer that was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer(raw::RedisModuleTimerID);

impl Context<'_> {
    /// Wakes `alarm` once, `ms` from now.
    pub(crate) fn start_timer(&self, ms: u64, alarm: Alarm) -> Timer {
        let data = ptr::without_provenance_mut::<c_void>(alarm as usize);
        let ms = i64::try_from(ms).unwrap_or(i64::MAX);
        // SAFETY: the data is a number, not a pointer.
        Timer(unsafe {
            api!(
                RedisModule_CreateTimer,
                self.as_ptr(),
                ms,
                Some(on_timer),
                data
            )
        })
    }

    /// Stops a timer; one that has fired already is left alone.
    pub(crate) fn stop_timer(&self, timer: Timer) {
        // SAFETY: an id that is not known any more is refused by the server.
        unsafe {
            api!(
                RedisModule_StopTimer,
                self.as_ptr(),
                timer.0,
                ptr::null_mut()
            )
        };
    }
}

impl Alarm {
    /// The one that was passed to the server as this number.
    fn of(number: usize) -> Self {
        let all = [Self::Sweep, Self::Due, Self::Background];
        let found = all.into_iter().find(|alarm| *alarm as usize == number);
        found.unwrap_or(Self::EndOfTurn)
    }
}

unsafe extern "C" fn on_timer(ctx: *mut raw::RedisModuleCtx, data: *mut c_void) {
    catch("a timer", || {
        // SAFETY: the server's context for this call.
        let ctx = unsafe { Context::new(ctx) };
        if let Some(answer) = ANSWER.get() {
            answer(&ctx, Alarm::of(data.addr()));
        }
    });
}
