//! A network between two servers that can fail without either of them noticing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::door::Door;
use crate::server::Server;

/// A port that leads to a server, until it is cut.
///
/// A cut link is a black hole: connections stay open, nothing arrives, in neither direction, and
/// neither side notices the end of the other. Data in flight arrives when the link is repaired, as
/// TCP would send it again. A link can also be slow, each way by itself: what is sent arrives
/// later, in the order in which it was sent.
#[derive(Debug)]
pub struct Link {
    door: Door,
    cut: Arc<AtomicBool>,
}

impl Link {
    /// A link to `server`.
    ///
    /// # Panics
    /// If no port can be had.
    pub fn to(server: &Server) -> Link {
        let cut = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&cut);
        let door = Door::new(move |_| !shared.load(Ordering::SeqCst));
        door.lead_to(server.port());
        Link { door, cut }
    }

    /// The port on 127.0.0.1 that leads to the server.
    pub fn port(&self) -> u16 {
        self.door.port()
    }

    /// Leads new connections to another server, as behind a proxy or a name; existing ones stay.
    pub fn lead_to(&self, server: &Server) {
        self.door.lead_to(server.port());
    }

    /// Delays what the server sends from now on by this much: to its replica, the stream.
    pub fn delay_stream(&self, by: Duration) {
        self.door.delay_out(by);
    }

    /// Holds back what the server sends, including data in flight.
    pub fn hold_stream(&self) {
        self.door.hold_out(true);
    }

    /// Lets so many bytes arrive of those that are held back. Only one connection may lead through the link.
    pub fn let_through(&self, bytes: u64) {
        self.door.let_out(bytes);
    }

    /// Lets everything that was held back arrive at once.
    pub fn release_stream(&self) {
        self.door.hold_out(false);
    }

    /// Delays what is sent to the server from now on by this much: from its replica, the acknowledgements.
    pub fn delay_acknowledgements(&self, by: Duration) {
        self.door.delay_in(by);
    }

    /// Holds back what is sent over the connections that there are now, both ways. What is sent over new ones arrives before it.
    pub fn hold_older(&self) {
        self.door.hold_older(true);
    }

    /// Lets what older connections have sent arrive.
    pub fn release_older(&self) {
        self.door.hold_older(false);
    }

    /// Lets nothing pass from now on.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// Lets data pass again, including what was held up.
    pub fn mend(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }
}
