//! Fuzzes the arguments of the module's commands.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mortise_fuzz::arguments(bytes));
