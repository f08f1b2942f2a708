//! Finds the servers: those that were named, the nodes of a cluster, and those that Sentinels
//! watch.
//!
//! It asks the sources anew for every scrape. If none answers, the servers known before stay.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mortise_reach::Node;
use redis::{RedisError, Value};

use crate::address::Address;
use crate::link::{Access, Link};

/// The first server asked may take this part of a scrape's limit, so that there is time to ask another one.
const SHARE: u32 = 3;

/// Where the exporter knows servers from.
#[derive(Debug)]
pub(crate) enum Source {
    /// The server itself.
    Server(Address),
    /// All nodes of a cluster, asked from one of these.
    Cluster(Vec<Address>),
    /// The primary of this name and its replicas, asked from one of these Sentinels.
    Sentinels(String, Vec<Address>),
}

/// A source, and its last answer.
#[derive(Debug)]
pub(crate) struct Discovery {
    source: Source,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    servers: Vec<Address>,
    /// The one that answered last, and is asked first.
    speaker: Option<Address>,
}

/// The result of asking.
pub(crate) struct Found {
    pub(crate) servers: Vec<Address>,
    /// Why none answered: the servers are those that were known before.
    pub(crate) failure: Option<String>,
}

impl Source {
    /// The source as metrics name it, if anybody has to be asked.
    fn name(&self) -> Option<String> {
        let names = |seeds: &[Address]| {
            let names: Vec<&str> = seeds.iter().map(|seed| &*seed.name).collect();
            names.join(",")
        };
        match self {
            Source::Server(_) => None,
            Source::Cluster(seeds) => Some(names(seeds)),
            Source::Sentinels(primary, seeds) => Some(format!("{primary}@{}", names(seeds))),
        }
    }

    /// The servers to ask, in this order.
    fn speakers(&self, last: &Last) -> Vec<Address> {
        let (seeds, others) = match self {
            Source::Server(_) => (&[][..], &[][..]),
            // The servers that were named may have left the cluster.
            Source::Cluster(seeds) => (&seeds[..], &last.servers[..]),
            Source::Sentinels(_, seeds) => (&seeds[..], &[][..]),
        };
        let mut speakers: Vec<Address> = Vec::new();
        for speaker in last.speaker.iter().chain(seeds).chain(others) {
            if !speakers.contains(speaker) {
                speakers.push(speaker.clone());
            }
        }
        speakers
    }

    fn ask(
        &self,
        speaker: &Address,
        access: &Access,
        limit: Duration,
    ) -> Result<Vec<Address>, String> {
        match self {
            Source::Server(address) => Ok(vec![address.clone()]),
            Source::Cluster(_) => ask_node(speaker, access, limit),
            Source::Sentinels(primary, _) => ask_sentinel(speaker, primary, access, limit),
        }
    }
}

impl Discovery {
    pub(crate) fn new(source: Source) -> Self {
        Self {
            source,
            last: Mutex::default(),
        }
    }

    pub(crate) fn name(&self) -> Option<String> {
        self.source.name()
    }

    /// Asks for the servers that there are.
    pub(crate) fn find(&self, access: &Access, limit: Duration) -> Found {
        if let Source::Server(address) = &self.source {
            return Found {
                servers: vec![address.clone()],
                failure: None,
            };
        }
        let began = Instant::now();
        let speakers = self.source.speakers(&self.last());
        let mut failures = Vec::new();
        for speaker in speakers {
            let left = limit.saturating_sub(began.elapsed());
            if left.is_zero() {
                break;
            }
            match self.source.ask(&speaker, access, left.min(limit / SHARE)) {
                Ok(servers) => {
                    let mut last = self.last();
                    last.servers.clone_from(&servers);
                    last.speaker = Some(speaker);
                    return Found {
                        servers,
                        failure: None,
                    };
                }
                Err(why) => failures.push(format!("{}: {why}", speaker.name)),
            }
        }
        Found {
            servers: self.last().servers.clone(),
            failure: Some(failures.join("; ")),
        }
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ask_node(node: &Address, access: &Access, limit: Duration) -> Result<Vec<Address>, String> {
    let ask = || Link::open(node, access, limit)?.ask(&["CLUSTER", "NODES"]);
    let reply = ask().map_err(|error| error.to_string())?;
    let nodes = text(&reply);
    let members: Vec<Address> = nodes
        .lines()
        .filter_map(|line| member(line, node))
        .collect();
    match members.len() {
        0 => Err("it knows of no node".to_owned()),
        _ => Ok(members),
    }
}

/// The node in a line of `CLUSTER NODES`, primary or replica, as `speaker` would call it.
fn member(line: &str, speaker: &Address) -> Option<Address> {
    let node = Node::parse(line, speaker.is_tls())?;
    Some(speaker.sibling(node.host.unwrap_or(speaker.host()), node.port))
}

/// A Sentinel often asks for no password where its servers do, so it is tried without one first.
fn ask_sentinel(
    sentinel: &Address,
    primary: &str,
    access: &Access,
    limit: Duration,
) -> Result<Vec<Address>, String> {
    let nobody = Access {
        login: crate::link::Login::default(),
        ..access.clone()
    };
    let answer = match watched(sentinel, primary, &nobody, limit) {
        Err(error) if matches!(error.code(), Some("NOAUTH" | "NOPERM")) => {
            watched(sentinel, primary, access, limit)
        }
        answer => answer,
    };
    let servers = answer.map_err(|error| error.to_string())?;
    match servers.len() {
        0 => Err(format!("it watches no primary '{primary}'")),
        _ => Ok(servers),
    }
}

/// The primary of this name and its replicas; nobody if the Sentinel does not know it.
fn watched(
    sentinel: &Address,
    name: &str,
    access: &Access,
    limit: Duration,
) -> Result<Vec<Address>, RedisError> {
    let mut link = Link::open(sentinel, access, limit)?;
    let primary = link.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name])?;
    let Some([host, port]) = primary.as_sequence() else {
        return Ok(Vec::new());
    };
    let mut servers = vec![sentinel.sibling(&text(host), &text(port))];
    let replicas = link.ask(&["SENTINEL", "REPLICAS", name])?;
    for replica in replicas.as_sequence().unwrap_or_default() {
        let field = |wanted: &str| {
            let mut pairs = replica.as_map_iter()?;
            pairs
                .find(|(name, _)| text(name) == wanted)
                .map(|(_, value)| text(value))
        };
        if let (Some(host), Some(port)) = (field("ip"), field("port")) {
            servers.push(sentinel.sibling(&host, &port));
        }
    }
    Ok(servers)
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => text.clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "\
a1 127.0.0.1:7000@17000 myself,master - 0 0 1 connected 0-5460
b2 127.0.0.1:7001@17001,node-b master,fail - 0 1 2 connected 5461-16383
c3 127.0.0.1:7002@17002 slave a1 0 1 1 connected
d4 :0@0 master,noaddr - 0 1 6 disconnected
e5 ::1:7003@17003,,shard-id=7 slave b2 0 1 1 connected";

    fn names(speaker: &str) -> Vec<String> {
        let speaker = Address::parse(speaker).unwrap();
        let members = NODES.lines().filter_map(|line| member(line, &speaker));
        members.map(|address| address.name).collect()
    }

    #[test]
    fn all_nodes_of_a_cluster_that_have_an_address_are_listed() {
        let plain = [
            "127.0.0.1:7000",
            "127.0.0.1:7001",
            "127.0.0.1:7002",
            "[::1]:7003",
        ];
        assert_eq!(names("127.0.0.1:7000"), plain);
        assert_eq!(names("rediss://127.0.0.1:7000")[1], "node-b:7001");
    }

    #[test]
    fn a_node_that_knows_no_others_has_the_address_by_which_it_was_asked() {
        let line = "a1 :7000@17000 myself,master - 0 0 1 connected 0-16383";
        let speaker = Address::parse("locks.example:7000").unwrap();
        assert_eq!(member(line, &speaker), Some(speaker));
    }
}
