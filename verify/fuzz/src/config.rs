//! Replaces the module's settings by their defaults.

use crate::ffi::Context;

pub(crate) fn max_lease(_ctx: &Context<'_>) -> u64 {
    86_400_000
}
