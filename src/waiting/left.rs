//! Owners that have left a key for a while (`LEAVE … FOR`).

use std::cell::RefCell;

use mortise_core::Left;

use crate::ffi::Context;
use crate::waiting::state;

pub(crate) fn all(ctx: &Context<'_>) -> &'static RefCell<Left> {
    &state::get(ctx).left
}
