//! Owners that have left a key for good.

use std::cell::{LazyCell, RefCell};

use mortise_core::Left;

use crate::ffi::{Context, MainThread};

static LEFT: MainThread<LazyCell<RefCell<Left>>> = MainThread::new(LazyCell::new(RefCell::default));

pub(crate) fn all(ctx: &Context<'_>) -> &'static RefCell<Left> {
    LEFT.get(ctx)
}
