//! The clocks of the machine as the server sees them.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::conn::Conn;
use crate::value::{array, text};

/// Microseconds since 1970 by the wall clock, from which tokens are made.
///
/// # Panics
/// If the clock stands before 1970.
pub fn wall_micros() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a wall clock past 1970");
    i64::try_from(since.as_micros()).expect("a wall clock before the year 290000")
}

/// The kernel's boot id, as the bytes that the module writes.
///
/// # Panics
/// If the kernel has none.
pub fn boot_id() -> [u8; 16] {
    let text =
        fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a kernel with a boot id");
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).expect("a boot id of 32 digits");
    number.to_be_bytes()
}

/// Milliseconds since the machine started, up to 10 ms too few.
///
/// # Panics
/// If the kernel does not show that.
pub fn boot_millis() -> u64 {
    let uptime = fs::read_to_string("/proc/uptime").expect("a kernel that shows its uptime");
    let seconds = uptime.split(' ').next().expect("two numbers");
    let hundredths = seconds.replace('.', "");
    10 * hundredths.parse::<u64>().expect("seconds and hundredths")
}

/// A server's wall clock, in microseconds since 1970.
///
/// # Panics
/// If the server refuses `TIME`.
#[track_caller]
pub fn server_micros(conn: &mut Conn) -> u64 {
    let time = crate::cmd!(conn, "TIME");
    let part = |at: usize| -> u64 { text(&array(&time)[at]).parse().expect("a number") };
    part(0) * 1_000_000 + part(1)
}
