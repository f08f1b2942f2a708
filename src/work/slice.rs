//! Slices of work, short enough that other clients notice no delay, and how long they took.

use std::cell::Cell;

use crate::ffi::{Context, MainThread};
use crate::time::clock;
use crate::waiting;

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
        let cpu = clock::cpu_micros();
        self.read.set((now, cpu));
        cpu
    }
}

/// Does `work` and records the processor time that it took.
pub(crate) fn measured(ctx: &Context<'_>, work: impl FnOnce()) {
    let began = clock::cpu_micros();
    work();
    let took = clock::cpu_micros().saturating_sub(began);
    LONGEST.get(ctx).note(took);
}

/// A command that is measured, until this is dropped. Reading the processor's clock costs as much as a short command, so this reads
/// the boot-time clock, and the other one once a millisecond.
#[derive(Debug)]
#[must_use = "it measures until it is dropped"]
pub(crate) struct Stretch {
    /// In microseconds of the boot-time clock.
    began: u64,
    longest: &'static Longest,
}

impl Stretch {
    /// A command begins to work. `None` while nobody waits: it is short then.
    #[inline]
    pub(crate) fn begin(ctx: &Context<'_>) -> Option<Self> {
        if waiting::queues(ctx).borrow().is_empty() {
            return None;
        }
        let (began, longest) = (clock::now_micros(), LONGEST.get(ctx));
        if began.saturating_sub(longest.read.get().0) > FRESH {
            longest.read_cpu(began);
        }
        Some(Self { began, longest })
    }
}

impl Drop for Stretch {
    /// Records the processor time that the command took, which is known up to a millisecond.
    fn drop(&mut self) {
        let now = clock::now_micros();
        let took = now.saturating_sub(self.began);
        if took > self.longest.micros.get() {
            let (_, cpu) = self.longest.read.get();
            let used = self.longest.read_cpu(now).saturating_sub(cpu);
            self.longest.note(took.min(used));
        }
    }
}

/// The longest that the module was at work at a stretch, in microseconds of processor time.
pub(crate) fn longest(ctx: &Context<'_>) -> u64 {
    LONGEST.get(ctx).micros.get()
}
