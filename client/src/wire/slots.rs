//! Redis Cluster: which slot a key has, and which node a slot.

use crate::wire::Reply;

pub(crate) const SLOTS: u16 = 16384;

/// The slot of a key: of what stands between its first `{` and the next `}`, if there is anything.
pub(crate) fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|it| *it == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|it| *it == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// A hash tag, without its braces, that has this slot.
pub(crate) fn tag(slot: u16) -> String {
    let tags = (0_u32..).map(|n| n.to_string());
    let mut fitting = tags.filter(|tag| crc16(tag.as_bytes()) % SLOTS == slot);
    fitting.next().unwrap_or_default()
}

/// CRC16 in its XMODEM flavour.
fn crc16(bytes: &[u8]) -> u16 {
    let step = |crc: u16, byte: &u8| {
        let crc = crc ^ (u16::from(*byte) << 8);
        (0..8).fold(crc, |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    };
    bytes.iter().fold(0, step)
}

/// Where a request belongs, by an error line; `now`: for this one time (`ASK`).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Redirection {
    pub(crate) slot: u16,
    pub(crate) node: String,
    pub(crate) once: bool,
}

/// Reads `MOVED slot host:port` and `ASK slot host:port`.
pub(crate) fn redirection(line: &str) -> Option<Redirection> {
    let mut words = line.split(' ');
    let once = match words.next()? {
        "MOVED" => false,
        "ASK" => true,
        _ => return None,
    };
    Some(Redirection {
        slot: words.next()?.parse().ok()?,
        node: words.next()?.to_owned(),
        once,
    })
}

/// The primaries in a reply to `CLUSTER SLOTS`, `[[from, to, [host, port, …], …], …]`: their slots, and addresses
/// (`host:port`; the host is empty where the node does not know its own).
pub(crate) fn primaries(reply: &Reply) -> Option<Vec<(u16, u16, String)>> {
    let Reply::Array(ranges) = reply else {
        return None;
    };
    let range = |range: &Reply| {
        let Reply::Array(range) = range else {
            return None;
        };
        let [Reply::Int(from), Reply::Int(to), Reply::Array(primary), ..] = &range[..] else {
            return None;
        };
        let [host, Reply::Int(port), ..] = &primary[..] else {
            return None;
        };
        let host = match host {
            Reply::Text(host) => String::from_utf8_lossy(host),
            _ => "".into(),
        };
        let slot = |it: &i64| u16::try_from(*it).ok().filter(|it| *it < SLOTS);
        Some((slot(from)?, slot(to)?, format!("{host}:{port}")))
    };
    ranges.iter().map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_same_slot_as_on_the_servers() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        for wanted in [0, 1, 8191, SLOTS - 1] {
            assert_eq!(slot(format!("{{{}}}x", tag(wanted)).as_bytes()), wanted);
        }
    }

    #[test]
    fn a_redirection_names_slot_and_node() {
        let moved = redirection("MOVED 3999 127.0.0.1:6381").unwrap();
        assert_eq!(
            (moved.slot, moved.node.as_str(), moved.once),
            (3999, "127.0.0.1:6381", false)
        );
        assert!(redirection("ASK 3999 ::1:6381").unwrap().once);
        assert_eq!(redirection("MOVED x y"), None);
        assert_eq!(redirection("ERR no"), None);
    }

    #[test]
    fn the_primary_is_the_first_node_of_its_range() {
        let node =
            |host: &str, port| Reply::Array(vec![Reply::Text(host.into()), Reply::Int(port)]);
        let range = |from, to, nodes: &[Reply]| {
            let mut range = vec![Reply::Int(from), Reply::Int(to)];
            range.extend(nodes.iter().cloned());
            Reply::Array(range)
        };
        let reply = Reply::Array(vec![
            range(0, 99, &[node("a", 1), node("b", 2)]),
            range(100, 16383, &[node("", 3)]),
        ]);
        let found = primaries(&reply).unwrap();
        assert_eq!(
            found,
            [(0, 99, "a:1".to_owned()), (100, 16383, ":3".to_owned())]
        );
        assert_eq!(
            primaries(&Reply::Array(vec![range(0, 16384, &[node("a", 1)])])),
            None
        );
    }
}
