//! Fuzzes the search for deadlocks.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mortise_fuzz::circles(bytes));
