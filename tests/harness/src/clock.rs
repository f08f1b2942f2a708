//! The wall clock as the server sees it.

use std::time::{SystemTime, UNIX_EPOCH};

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
