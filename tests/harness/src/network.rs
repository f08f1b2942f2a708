//! A network of servers that can fall into two parts, with processes alive on both sides.
//!
//! ```text
//!   a ──127.0.1.1──▶ [door of b] ──▶ b        Each server connects from its own address and announces its door
//!   c ──127.0.1.3──▶ [door of b] ──▶ b        instead of itself. So a door knows both ends of a connection.
//! ```
//!
//! It needs neither root nor network namespaces. A client of the test that connects to a server's own port is on that server's side.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::builder::Builder;
use crate::door::Door;
use crate::server::Server;

/// How the address of each server begins. Clients of the tests have another one.
const SERVERS: [u8; 3] = [127, 0, 1];

/// Servers that reach each other only as long as they are on one side.
#[derive(Debug, Default)]
pub struct Network {
    members: Mutex<Vec<Member>>,
    cut: Arc<Mutex<Cut>>,
}

/// The two sides of the network.
#[derive(Debug, Default)]
struct Cut {
    /// The servers on the other side.
    off: BTreeSet<IpAddr>,
    /// Clients still connect to servers on both sides.
    only_servers: bool,
}

impl Cut {
    /// Whether a connection from one address to another passes.
    fn lets(&self, from: IpAddr, to: IpAddr) -> bool {
        let is_server = matches!(from, IpAddr::V4(it) if it.octets().starts_with(&SERVERS));
        self.only_servers && !is_server || self.off.contains(&from) == self.off.contains(&to)
    }
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
        let [a, b, c] = SERVERS;
        let address = IpAddr::V4(Ipv4Addr::new(a, b, c, number));
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
        let cut = Arc::clone(&self.cut);
        Door::new(move |from| {
            let cut = cut.lock().expect("nobody panics with the cut in hand");
            cut.lets(from, address)
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

    /// Cuts the network in two: `servers`, which still reach each other, and the rest. Clients that connect through doors are with the rest.
    ///
    /// # Panics
    /// If one of them was not started by this network.
    #[track_caller]
    pub fn cut_off(&self, servers: &[&Server]) {
        self.cut(servers, false);
    }

    /// The same, but clients that connect through doors reach both parts.
    ///
    /// # Panics
    /// If one of them was not started by this network.
    #[track_caller]
    pub fn cut_off_from_servers(&self, servers: &[&Server]) {
        self.cut(servers, true);
    }

    #[track_caller]
    fn cut(&self, servers: &[&Server], only_servers: bool) {
        let addresses = servers
            .iter()
            .map(|server| self.with(server, |member| member.address));
        let off = addresses.collect();
        let mut cut = self.cut.lock().expect("nobody panics with the cut in hand");
        *cut = Cut { off, only_servers };
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
