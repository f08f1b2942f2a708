//! Fuzzes the effects that replicas and the AOF receive.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mortise_fuzz::effects(bytes));
