//! Fuzzes whole programs of holds.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mortise_fuzz::programs(bytes));
