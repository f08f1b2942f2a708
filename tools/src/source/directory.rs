//! Which servers there are: those that were named, those that a cluster's nodes know of, or the one that Sentinels name.

use std::collections::{BTreeMap, BTreeSet};

use super::dial::Address;

/// The servers to ask.
#[derive(Debug)]
pub(super) struct Directory {
    /// Those that were named.
    seeds: Vec<Address>,
    /// The names of those that are nodes of a cluster: the cluster decides whether they are
    /// primaries.
    in_cluster: BTreeSet<String>,
    /// Which primaries each node knows of.
    known: BTreeMap<String, Vec<Address>>,
}

impl Directory {
    pub(super) fn new(seeds: Vec<Address>) -> Directory {
        Directory {
            seeds,
            in_cluster: BTreeSet::new(),
            known: BTreeMap::new(),
        }
    }

    /// A node of a cluster knows of these.
    pub(super) fn heard(&mut self, node: String, members: Vec<Address>) {
        self.in_cluster.insert(node.clone());
        if !members.is_empty() {
            self.known.insert(node, members);
            self.forget_outsiders();
        }
    }

    /// A server does not answer: its knowledge counts as long as no other node answers.
    pub(super) fn silent(&mut self, node: &str) {
        if self.known.len() > 1 {
            self.known.remove(node);
        }
    }

    /// There is this one only.
    pub(super) fn only(&mut self, primary: Address) {
        self.seeds = vec![primary];
    }

    /// The knowledge of a node that is no longer asked counts while no other node answers.
    fn forget_outsiders(&mut self) {
        let names: BTreeSet<String> = self.servers().iter().map(Address::name).collect();
        let inside = self
            .known
            .keys()
            .filter(|name| names.contains(*name))
            .count();
        if inside > 0 {
            self.known.retain(|name, _| names.contains(name));
        }
    }

    /// All servers to ask. If the nodes of a cluster disagree, every node that one of them counts
    /// as a primary.
    pub(super) fn servers(&self) -> Vec<Address> {
        let seeds = self
            .seeds
            .iter()
            .filter(|seed| !self.in_cluster.contains(&seed.name()));
        let mut servers: BTreeMap<String, &Address> = BTreeMap::new();
        for address in seeds.chain(self.known.values().flatten()) {
            servers.entry(address.name()).or_insert(address);
        }
        servers.into_values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::IntoConnectionInfo;

    fn at(host: &str) -> Address {
        let url = format!("redis://{host}/");
        Address::new(url.into_connection_info().unwrap(), None)
    }

    fn names(directory: &Directory) -> Vec<String> {
        directory.servers().iter().map(Address::name).collect()
    }

    #[test]
    fn the_primaries_of_a_cluster_replace_the_named_node() {
        let mut directory = Directory::new(vec![at("localhost:1")]);
        directory.heard("localhost:1".into(), vec![at("a:1"), at("b:1")]);
        assert_eq!(names(&directory), ["a:1", "b:1"]);
        directory.heard("a:1".into(), vec![at("a:1"), at("b:1")]);
        directory.heard("a:1".into(), vec![at("a:1"), at("c:1")]);
        assert_eq!(names(&directory), ["a:1", "c:1"]);
    }

    #[test]
    fn the_knowledge_of_a_silent_node_counts_while_no_other_node_replies() {
        let mut directory = Directory::new(vec![at("a:1")]);
        directory.heard("a:1".into(), vec![at("a:1"), at("b:1")]);
        directory.silent("a:1");
        assert_eq!(names(&directory), ["a:1", "b:1"]);
        directory.heard("b:1".into(), vec![at("b:1"), at("c:1")]);
        directory.silent("a:1");
        assert_eq!(names(&directory), ["b:1", "c:1"]);
    }

    #[test]
    fn servers_that_are_no_cluster_stay() {
        let mut directory = Directory::new(vec![at("alone:1"), at("a:1")]);
        directory.heard("a:1".into(), vec![at("a:1"), at("b:1")]);
        assert_eq!(names(&directory), ["a:1", "alone:1", "b:1"]);
        directory.only(at("z:1"));
    }
}
