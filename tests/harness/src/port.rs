//! Ports for servers.

use std::net::TcpListener;
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Below the range that the system takes for outgoing connections, so that a server finds its port free again
/// after a restart; a cluster's bus port, 10000 higher, stays below 65536.
const FIRST: u16 = 11_000;
const COUNT: u16 = 11_000;
/// How much higher than a node's port its port for the cluster's bus is.
pub(crate) const BUS: u16 = 10_000;

/// A port that was free a moment ago. Another process may be quicker: be ready to ask again.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test binaries that run side by side begin in different places.
    if NEXT.load(Ordering::Relaxed) == 0 {
        let nanos = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.subsec_nanos());
        let start = (process::id().wrapping_mul(7919) ^ nanos) % u32::from(COUNT) + 1;
        let _ = NEXT.compare_exchange(0, start as u16, Ordering::Relaxed, Ordering::Relaxed);
    }
    for _ in 0..COUNT {
        let port = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if free(port) && free(port + BUS) {
            return port;
        }
    }
    panic!("no free port in {FIRST}..{}", FIRST + COUNT);
}
