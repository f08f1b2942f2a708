//! What replicas and the AOF get.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mortise_fuzz::effects(bytes));
