//! The slots of a Redis Cluster.

pub(crate) const SLOTS: u16 = 16384;

/// Returns the slot of a key. Only the bytes between its first `{` and the next `}` count, if there are any.
pub(crate) fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|it| *it == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|it| *it == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// CRC16 in its XMODEM flavour.
fn crc16(bytes: &[u8]) -> u16 {
    let shift = |crc: u16, _| match crc & 0x8000 {
        0 => crc << 1,
        _ => (crc << 1) ^ 0x1021,
    };
    let add = |crc: u16, byte: &u8| (0..8).fold(crc ^ (u16::from(*byte) << 8), shift);
    bytes.iter().fold(0, add)
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
    }
}
