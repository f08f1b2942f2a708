//! Slices of work, short enough that other clients notice no delay, and how long they took.

use mortise_core::Micros;

use crate::ffi::{self, Context};
use crate::time::clock;
use crate::work::state::{self, Turn};

/// How long a slice may take before other clients get their turn, in microseconds.
const SLICE: u64 = 1_000;
/// A slice reads the clock once every so many steps.
const STEPS_PER_CHECK: usize = 4;

/// A slice of work that ends before other clients notice a delay.
pub(crate) struct Slice {
    began: Micros,
    done: usize,
}

impl Slice {
    pub(crate) fn begin() -> Self {
        Self {
            began: clock::wall(),
            done: 0,
        }
    }

    /// One more step is done. True if the slice is over.
    pub(crate) fn is_over(&mut self) -> bool {
        self.done += 1;
        // A step of the wall clock, in either direction, ends the slice, too.
        self.done.is_multiple_of(STEPS_PER_CHECK) && clock::wall().0.abs_diff(self.began.0) > SLICE
    }
}

/// Does `work` and records the processor time that it took, which other programs on the machine do not lengthen.
pub(crate) fn measured(ctx: &Context<'_>, work: impl FnOnce()) {
    let began = ffi::cpu_micros();
    work();
    let took = ffi::cpu_micros().saturating_sub(began);
    let longest = &state::get(ctx).longest_stretch;
    longest.set(longest.get().max(took));
}

/// The longest that the module was at work by itself, in microseconds of processor time.
pub(crate) fn longest_stretch(turn: &Turn) -> u64 {
    turn.longest_stretch.get()
}
