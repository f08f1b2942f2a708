//! Timers of the server, one for each alarm. They compare wall-clock time, so a handler checks its
//! deadline again.
//!
//! None is started while one fires. The server fires in one loop all that are due by the time at
//! which it began: if the wall clock has stepped back since, a timer that is started meanwhile is
//! due at once, and again, and the server does nothing else until the clock has caught up. So a timer that is wanted meanwhile starts a
//! moment later, from the event loop.

use std::cell::Cell;
use std::os::raw::c_void;
use std::ptr;

use redis_module::raw;

use super::context::Context;
use super::context::MainThread;
use super::handlers::{self, Alarm};
use super::log::catch;

#[derive(Clone, Copy, Debug)]
enum Timer {
    None,
    /// Start it for so many milliseconds, once no other timer is firing.
    Asked(u64),
    Started(raw::RedisModuleTimerID),
}

thread_local! {
    /// True on the event loop's thread.
    static IS_EVENT_LOOP: Cell<bool> = const { Cell::new(false) };
}

/// By alarm.
static TIMERS: MainThread<[Cell<Timer>; Alarm::ALL.len()]> =
    MainThread::new([const { Cell::new(Timer::None) }; Alarm::ALL.len()]);
/// A timer is firing.
static IS_FIRING: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// At load time: this thread runs the event loop.
pub(super) fn on_load() {
    IS_EVENT_LOOP.set(true);
}

impl Context<'_> {
    fn timer(&self, alarm: Alarm) -> &'static Cell<Timer> {
        &TIMERS.get(self)[alarm as usize]
    }

    /// Fires `alarm` once, `ms` from now, instead of when it was to fire before.
    pub(crate) fn start_timer(&self, ms: u64, alarm: Alarm) {
        self.stop_timer(alarm);
        let timer = if IS_FIRING.get(self).get() {
            Timer::Asked(ms)
        } else {
            Timer::Started(self.create_timer(ms, alarm))
        };
        self.timer(alarm).set(timer);
    }

    /// Whether the alarm's timer is under way.
    pub(crate) fn has_timer(&self, alarm: Alarm) -> bool {
        !matches!(self.timer(alarm).get(), Timer::None)
    }

    /// Stops the alarm's timer, if it is under way.
    pub(crate) fn stop_timer(&self, alarm: Alarm) {
        if let Timer::Started(id) = self.timer(alarm).replace(Timer::None) {
            // SAFETY: an id that is not known any more is refused by the server.
            unsafe { api!(RedisModule_StopTimer, self.as_ptr(), id, ptr::null_mut()) };
        }
    }

    fn create_timer(&self, ms: u64, alarm: Alarm) -> raw::RedisModuleTimerID {
        let data = ptr::without_provenance_mut::<c_void>(alarm as usize);
        let ms = i64::try_from(ms).unwrap_or(i64::MAX);
        // SAFETY: the data is a number, not a pointer.
        let id = unsafe {
            api!(
                RedisModule_CreateTimer,
                self.as_ptr(),
                ms,
                Some(on_timer),
                data
            )
        };
        if !IS_EVENT_LOOP.get() {
            // Another module's thread: the event loop sleeps, and knows only the timers from before.
            wake_event_loop();
        }
        id
    }

    fn start_asked_timers(&self) {
        for alarm in Alarm::ALL {
            if let Timer::Asked(ms) = self.timer(alarm).get() {
                self.start_timer(ms, alarm);
            }
        }
    }
}

unsafe extern "C" fn on_timer(ctx: *mut raw::RedisModuleCtx, data: *mut c_void) {
    // SAFETY: the server's context for this call.
    let ctx = unsafe { Context::new(ctx) };
    let Some(alarm) = Alarm::ALL.get(data.addr()) else {
        return;
    };
    ctx.timer(*alarm).set(Timer::None);
    IS_FIRING.get(&ctx).set(true);
    catch("a timer", || (handlers::get().on_alarm)(&ctx, *alarm));
    IS_FIRING.get(&ctx).set(false);
    let is_asked = |timer: &Cell<Timer>| matches!(timer.get(), Timer::Asked(_));
    if TIMERS.get(&ctx).iter().any(is_asked) {
        wake_event_loop();
    }
}

/// Calls [`on_event_loop`] from the event loop, and wakes that if it sleeps. Any thread may call this.
fn wake_event_loop() {
    let call = Some(on_event_loop as unsafe extern "C" fn(*mut c_void));
    // SAFETY: the function takes no data.
    unsafe { api!(RedisModule_EventLoopAddOneShot, call, ptr::null_mut()) };
}

unsafe extern "C" fn on_event_loop(_data: *mut c_void) {
    catch("the event loop", || {
        // SAFETY: the event loop calls this with the server's lock held.
        unsafe { Context::detached() }.start_asked_timers();
    });
}
