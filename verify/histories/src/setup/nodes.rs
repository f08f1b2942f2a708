//! A primary and its replicas, which reach one another over links, and clients that follow the primary.

use std::sync::Arc;

use mortise_harness::{
    Builder, Link, Server, cmd, eventually, try_cmd, wait_for_sync, wait_for_sync_over,
};

use super::{Entry, Primary, View};
use crate::client::Place;

pub(super) struct Nodes {
    pub(super) servers: Vec<Server>,
    /// How its replicas reach each server.
    pub(super) doors: Vec<Link>,
    pub(super) primary: usize,
    clients: Vec<Arc<Link>>,
    shown: Primary,
}

impl Nodes {
    /// So many servers; the first one is the primary.
    pub(super) fn start(count: usize, builder: impl Fn() -> Builder) -> Nodes {
        let primary = builder().start();
        let mut nodes = Nodes {
            doors: vec![Link::to(&primary)],
            shown: Primary::at(primary.port()),
            servers: vec![primary],
            primary: 0,
            clients: Vec::new(),
        };
        for _ in 1..count {
            let replica = builder().replica_over(&nodes.doors[0]).start();
            wait_for_sync_over(&nodes.doors[0], &nodes.servers[0], &replica);
            nodes.doors.push(Link::to(&replica));
            nodes.servers.push(replica);
        }
        nodes
    }

    /// The servers other than the primary, the next one first.
    pub(super) fn others(&self) -> Vec<usize> {
        let count = self.servers.len();
        (1..count).map(|n| (self.primary + n) % count).collect()
    }

    /// Makes a server follow the primary.
    pub(super) fn follow(&self, server: usize) {
        let port = self.doors[self.primary].port();
        cmd!(self.servers[server].connect(), "REPLICAOF 127.0.0.1 {port}");
    }

    /// Leads new connections of clients to the new primary. Existing ones stay.
    pub(super) fn promote(&mut self, server: usize) {
        cmd!(self.servers[server].connect(), "REPLICAOF", "NO", "ONE");
        for link in &self.clients {
            link.lead_to(&self.servers[server]);
        }
        self.primary = server;
        self.shown.is_now(self.servers[server].port());
    }

    /// Cuts the primary off from all but `rest`. All replicas come over one link, so those get connections of their own.
    pub(super) fn divide(&self, rest: &[usize]) {
        let primary = &self.servers[self.primary];
        let port = primary.port();
        for other in rest {
            let other = &self.servers[*other];
            cmd!(other.connect(), "REPLICAOF 127.0.0.1 {port}");
            wait_for_sync(primary, other);
        }
        self.doors[self.primary].cut();
    }

    /// Starts a server that was killed as a replica of the primary.
    pub(super) fn revive(&mut self, server: usize) {
        let port = self.doors[self.primary].port();
        let server = &mut self.servers[server];
        server.set_config("replicaof", &format!("127.0.0.1 {port}"));
        server.start_again();
    }

    /// Closes the clients' connections to a server, as moving an address does.
    pub(super) fn close_clients(&self, server: usize) {
        cmd!(
            self.servers[server].connect(),
            "CLIENT KILL TYPE normal SKIPME yes"
        );
    }

    /// Waits until the server has what the primary has.
    pub(super) fn await_replica(&self, server: usize) {
        let (door, primary) = (&self.doors[self.primary], &self.servers[self.primary]);
        wait_for_sync_over(door, primary, &self.servers[server]);
    }

    pub(super) fn await_writes(&self) {
        eventually("the primary takes writes", || {
            let mut conn = self.servers[self.primary].connect();
            try_cmd!(conn, "SET", "healed", "yes")
        });
    }

    pub(super) fn entry(&mut self) -> Entry {
        let link = Arc::new(Link::to(&self.servers[self.primary]));
        self.clients.push(link.clone());
        Entry {
            place: Place::One(link.port()),
            links: vec![link],
        }
    }

    pub(super) fn servers(&self) -> Vec<&Server> {
        self.servers.iter().collect()
    }

    pub(super) fn primaries(&self) -> Vec<&Server> {
        vec![&self.servers[self.primary]]
    }

    pub(super) fn view(&self) -> View {
        View::Primary(self.shown.clone())
    }
}
