//! Fuzzes locks that were dumped, or saved to a file.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mortise_fuzz::saved_locks(bytes));
