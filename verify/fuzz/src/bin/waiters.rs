//! Fuzzes whole programs of waiters.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mortise_fuzz::waiters(bytes));
