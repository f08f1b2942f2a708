//! Ports for servers.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Below the range that the system takes for outgoing connections, so that a server finds its port free again
/// after a restart; a cluster's bus port, [`BUS`] higher, stays below that range, too. Above those of the helpers' tests.
const FIRST: u16 = 15_000;
/// At most [`BUS`], so that no bus port is another server's port.
const COUNT: u16 = 5_000;
/// How much higher than a node's port its port for the cluster's bus is.
const BUS: u16 = 10_000;

/// A port that no other server of any test program on this machine gets while this value lives, not even while its own server is down, so
/// that it can be started again.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// Bound to an abstract name made of the number: the system lets one process have it, and frees it with the process.
    _claim: UnixListener,
}

impl Port {
    /// A free port. Another program may still take it first, so be ready to ask again.
    ///
    /// # Panics
    /// If there is none.
    pub fn claim() -> Port {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        // Test programs that run side by side begin in different places.
        if NEXT.load(Ordering::Relaxed) == 0 {
            let nanos = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.subsec_nanos());
            let start = (process::id().wrapping_mul(7919) ^ nanos) % u32::from(COUNT) + 1;
            let _ = NEXT.compare_exchange(0, start as u16, Ordering::Relaxed, Ordering::Relaxed);
        }
        for _ in 0..COUNT {
            let number = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
            // It is claimed before it is tried, because trying binds it for a moment, which could disturb its owner.
            let Some(claim) = claim(number) else { continue };
            let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
            if free(number) && free(number + BUS) {
                return Port {
                    number,
                    _claim: claim,
                };
            }
        }
        panic!("no free port in {FIRST}..{}", FIRST + COUNT);
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The port for the other nodes of a cluster.
    pub(crate) fn bus(&self) -> u16 {
        self.number + BUS
    }
}

fn claim(number: u16) -> Option<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("mortise-test-port-{number}")).ok()?;
    UnixListener::bind_addr(&name).ok()
}
