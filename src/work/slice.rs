//! Slices of work, short enough that other clients notice no delay, and how long they took.

use std::cell::Cell;

use crate::ffi::{self, Context, MainThread};
use crate::time::clock;

static LONGEST: MainThread<Longest> = MainThread::new(Longest {
    micros: Cell::new(0),
    read: Cell::new((0, 0)),
});

/// How long a slice may take before other clients get their turn, in microseconds.
const SLICE: u64 = 1_000;
/// A slice reads the clock once every so many steps.
const STEPS_PER_CHECK: usize = 4;
/// How old a reading of the processor's clock may be when a command begins, in microseconds.
const FRESH: u64 = 1_000;

/// A slice of work that ends before other clients notice a delay.
pub(crate) struct Slice {
    began: u64,
    done: usize,
}

impl Slice {
    pub(crate) fn begin() -> Self {
        Self {
            began: clock::now_micros(),
            done: 0,
        }
    }

    /// Counts one more step. Returns whether the slice is over.
    pub(crate) fn is_over(&mut self) -> bool {
        self.done += 1;
        self.done.is_multiple_of(STEPS_PER_CHECK)
            && clock::now_micros().saturating_sub(self.began) > SLICE
    }
}

/// The longest that the module was at work at a stretch: in a timer, an event or a command.
#[derive(Debug)]
struct Longest {
    /// Microseconds of processor time, which other programs on the machine do not lengthen.
    micros: Cell<u64>,
    /// When the processor's clock was last read, and what it showed.
    read: Cell<(u64, u64)>,
}

impl Longest {
    fn note(&self, micros: u64) {
        self.micros.set(self.micros.get().max(micros));
    }

    fn read_cpu(&self, now: u64) -> u64 {
        let cpu = ffi::cpu_micros();
        self.read.set((now, cpu));
        cpu
    }
}

/// Does `work` and records the processor time that it took.
pub(crate) fn measured(ctx: &Context<'_>, work: impl FnOnce()) {
    let began = ffi::cpu_micros();
    work();
    let took = ffi::cpu_micros().saturating_sub(began);
    LONGEST.get(ctx).note(took);
}

/// A command that is measured. Reading the processor's clock costs as much as a short command, so this reads the
/// boot-time clock, and the other one once a millisecond.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    began: u64,
}

impl Stretch {
    /// A command begins to work at `now`, in microseconds of the boot-time clock.
    pub(crate) fn begin(ctx: &Context<'_>, now: u64) -> Self {
        let longest = LONGEST.get(ctx);
        if now.saturating_sub(longest.read.get().0) > FRESH {
            longest.read_cpu(now);
        }
        Self { began: now }
    }

    /// Records the processor time that the command took, which is known up to a millisecond.
    pub(crate) fn end(self, ctx: &Context<'_>) {
        let longest = LONGEST.get(ctx);
        let now = clock::now_micros();
        let took = now.saturating_sub(self.began);
        if took > longest.micros.get() {
            let (_, cpu) = longest.read.get();
            longest.note(took.min(longest.read_cpu(now).saturating_sub(cpu)));
        }
    }
}

/// The longest that the module was at work at a stretch, in microseconds of processor time.
pub(crate) fn longest(ctx: &Context<'_>) -> u64 {
    LONGEST.get(ctx).micros.get()
}
