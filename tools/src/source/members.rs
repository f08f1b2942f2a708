//! The members of a cluster, asked from one of its nodes.

use super::dial::Address;

/// The primaries that own slots, from `CLUSTER NODES` of `speaker`.
pub(super) fn of(nodes: &str, speaker: &Address) -> Vec<Address> {
    nodes
        .lines()
        .filter_map(|line| primary(line, speaker))
        .collect()
}

/// The node in a line of `CLUSTER NODES`, if it is a primary that owns slots.
fn primary(line: &str, speaker: &Address) -> Option<Address> {
    let mut fields = line.split(' ').skip(1);
    let (address, flags) = (fields.next()?, fields.next()?);
    let is = |wanted: &str| flags.split(',').any(|flag| flag == wanted);
    // Primary, pings, pongs, epoch and state stand between the flags and the first slots.
    if is("handshake") || is("noaddr") || !is("master") || fields.nth(5).is_none() {
        return None;
    }
    // `ip:port@bus`, and `,hostname` where one is announced.
    let mut parts = address.split(',');
    let (ip, port) = parts.next()?.split('@').next()?.rsplit_once(':')?;
    // A certificate is for a name.
    let hostname = parts
        .next()
        .filter(|name| speaker.is_tls() && !name.is_empty() && !name.contains('='));
    // A node that has met no other yet does not know its own address.
    let host = hostname.or(Some(ip).filter(|ip| !ip.is_empty()));
    match host.or(speaker.host()) {
        Some(host) => Some(speaker.sibling(host, port.parse().ok()?)),
        None => Some(speaker.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::IntoConnectionInfo;

    fn names(url: &str, nodes: &str) -> Vec<String> {
        let speaker = Address::new(url.into_connection_info().unwrap(), None);
        of(nodes, &speaker).iter().map(Address::name).collect()
    }

    const NODES: &str = "\
a1 127.0.0.1:7000@17000 myself,master - 0 0 1 connected 0-5460\n\
b2 127.0.0.1:7001@17001,node-b master - 0 1 2 connected 5461-10922 [5461->-a1]\n\
c3 127.0.0.1:7002@17002 slave a1 0 1 1 connected\n\
d4 127.0.0.1:7003@17003 master - 0 1 4 connected\n\
e5 127.0.0.1:7004@17004 master,fail? - 0 1 5 connected 10923-16383\n\
f6 :0@0 master,noaddr - 0 1 6 disconnected 3\n";

    #[test]
    fn only_primaries_with_slots_are_asked() {
        let expected = ["127.0.0.1:7000", "127.0.0.1:7001", "127.0.0.1:7004"];
        assert_eq!(names("redis://127.0.0.1:7000/", NODES), expected);
    }

    #[test]
    fn over_tls_a_node_is_reached_by_its_name() {
        assert_eq!(names("rediss://127.0.0.1:7000/", NODES)[1], "node-b:7001");
    }

    #[test]
    fn a_node_that_knows_no_others_has_the_address_by_which_it_was_found() {
        let alone = "a1 :7000@17000 myself,master - 0 0 1 connected 0-16383\n";
        assert_eq!(
            names("redis://locks.example:7000/", alone),
            ["locks.example:7000"]
        );
        assert_eq!(names("unix:///run/redis.sock", alone), ["/run/redis.sock"]);
    }
}
