//! Fuzzes whole programs of boxes and letters.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mortise_fuzz::letters(bytes));
