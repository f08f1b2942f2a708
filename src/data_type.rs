//! The callbacks of the server for locks as values of keys, and the code that handles them.

use std::ffi::CStr;

use mortise_core::KeyRef;

use crate::ffi::{self, Context, Source, Value};
use crate::keys::{arrivals, effect, leases, saved, tokens};
use crate::work::events;

/// The type `mort-lock`.
pub(crate) struct LockType;

impl ffi::DataType for LockType {
    const EFFECT: &'static CStr = effect::APPLY;

    fn to_bytes(ctx: &Context<'_>, value: &Value) -> Vec<u8> {
        saved::to_bytes(ctx, value)
    }

    fn to_effects(ctx: &Context<'_>, value: &Value, emit: impl FnMut(&[u8])) {
        saved::to_effects(ctx, value, emit);
    }

    fn from_bytes(ctx: &Context<'_>, bytes: &[u8], source: Source) -> Result<Value, String> {
        saved::from_bytes(ctx, bytes, source).map_err(|error| error.to_string())
    }

    fn loaded(ctx: &Context<'_>, key: KeyRef<'_>, source: Source) {
        match source {
            Source::Client | Source::Sync | Source::Primary | Source::Either => {
                arrivals::mark_restored(ctx, key);
            }
            Source::File | Source::ReplicaFile => arrivals::mark(ctx, key),
        }
    }

    fn copied(ctx: &Context<'_>, key: KeyRef<'_>, _: &Value) {
        arrivals::mark(ctx, key);
    }

    fn unlinked(ctx: &Context<'_>, key: KeyRef<'_>, value: &Value) {
        events::on_unlinked(ctx, key, value);
    }

    fn memory(value: &Value, name_len: usize) -> usize {
        leases::memory(value, name_len)
    }

    fn last_token(ctx: &Context<'_>) -> u64 {
        tokens::last(ctx)
    }

    fn load_last_token(ctx: &Context<'_>, last: u64) -> bool {
        tokens::load(ctx, last)
    }
}
