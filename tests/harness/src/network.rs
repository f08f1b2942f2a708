//! A network of servers that can fall into two parts, with processes alive on both sides.
//!
//! ```text
//!   a ──127.0.1.1──▶ [door of b] ──▶ b        Each server connects from its own address and announces its door
//!   c ──127.0.1.3──▶ [door of b] ──▶ b        instead of itself. So a door knows both ends of a connection.
//! ```
//!
//! It needs neither root nor network namespaces. Clients of the test connect to a server's own port, so they are on that
//! server's side.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::builder::Builder;
use crate::door::Door;
use crate::server::Server;

/// Servers that reach each other only as long as they are on one side.
#[derive(Debug, Default)]
pub struct Network {
    members: Mutex<Vec<Member>>,
    /// The servers on the other side.
    cut_off: Arc<Mutex<BTreeSet<IpAddr>>>,
}

#[derive(Debug)]
struct Member {
    server: u16,
    address: IpAddr,
    door: Door,
    bus: Door,
}

impl Network {
    /// A network without servers, in one piece.
    pub fn new() -> Network {
        Network::default()
    }

    /// Starts a server (a node of a cluster, a replica, a Sentinel) that others reach through this network.
    ///
    /// # Panics
    /// If it does not come up.
    #[track_caller]
    pub fn start(&self, builder: Builder) -> Server {
        let number = self.members().len() + 1;
        let number = u8::try_from(number).expect("a network of a few servers");
        let address = IpAddr::V4(Ipv4Addr::new(127, 0, 1, number));
        let (door, bus) = (self.door_of(address), self.door_of(address));
        if builder.is_sentinel() {
            for member in self.members().iter() {
                member.door.spare(address);
            }
        }
        let server = builder.announced(address, door.port(), bus.port()).start();
        door.lead_to(server.port());
        bus.lead_to(server.bus_port());
        self.members().push(Member {
            server: server.port(),
            address,
            door,
            bus,
        });
        server
    }

    fn door_of(&self, address: IpAddr) -> Door {
        let cut_off = Arc::clone(&self.cut_off);
        Door::new(move |from| {
            let cut_off = cut_off.lock().expect("nobody panics with the set in hand");
            cut_off.contains(&from) == cut_off.contains(&address)
        })
    }

    /// The port at which others find `server`.
    ///
    /// # Panics
    /// If it was not started by this network.
    #[track_caller]
    pub fn port_of(&self, server: &Server) -> u16 {
        self.with(server, |member| member.door.port())
    }

    /// The port at which other nodes of a cluster find `server`.
    ///
    /// # Panics
    /// If it was not started by this network.
    #[track_caller]
    pub fn bus_port_of(&self, server: &Server) -> u16 {
        self.with(server, |member| member.bus.port())
    }

    /// Cuts the network in two: `servers`, which still reach each other, and the rest.
    ///
    /// # Panics
    /// If one of them was not started by this network.
    #[track_caller]
    pub fn cut_off(&self, servers: &[&Server]) {
        let addresses = servers
            .iter()
            .map(|server| self.with(server, |member| member.address));
        let addresses = addresses.collect();
        *self
            .cut_off
            .lock()
            .expect("nobody panics with the set in hand") = addresses;
    }

    /// Delays by this much what `server` sends from now on over connections to its port: to its replicas, the stream.
    /// Not so for Sentinels started later than it.
    ///
    /// # Panics
    /// If it was not started by this network.
    #[track_caller]
    pub fn delay_stream(&self, server: &Server, by: Duration) {
        self.with(server, |member| member.door.delay_out(by));
    }

    /// Holds back what `server` sends over connections to its port, including data in flight; or lets it arrive.
    /// Not so for Sentinels started later than it.
    ///
    /// # Panics
    /// If it was not started by this network.
    #[track_caller]
    pub fn hold_stream(&self, server: &Server, held: bool) {
        self.with(server, |member| member.door.hold_out(held));
    }

    /// Delays by this much what `server` receives over connections to its port: from its replicas, the acknowledgements.
    ///
    /// # Panics
    /// If it was not started by this network.
    #[track_caller]
    pub fn delay_acknowledgements(&self, server: &Server, by: Duration) {
        self.with(server, |member| member.door.delay_in(by));
    }

    /// All servers reach each other again, and held data arrives.
    pub fn mend(&self) {
        self.cut_off(&[]);
    }

    #[track_caller]
    fn with<T>(&self, server: &Server, look: impl FnOnce(&Member) -> T) -> T {
        let members = self.members();
        let member = members.iter().find(|member| member.server == server.port());
        look(member.expect("a server that this network started"))
    }

    fn members(&self) -> std::sync::MutexGuard<'_, Vec<Member>> {
        self.members
            .lock()
            .expect("nobody panics with the list in hand")
    }
}
