//! Fuzzes the replies that the client reads.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mortise_fuzz::replies(bytes));
