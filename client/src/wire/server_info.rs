//! Reads what a server tells of itself: `INFO server`, lines of a name, a colon and a value.

fn field<'a>(info: &'a [u8], name: &str) -> Option<&'a str> {
    let mut lines = std::str::from_utf8(info).ok()?.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// What no two server processes have in common.
pub(crate) fn run_id(info: &[u8]) -> Option<&str> {
    field(info, "run_id")
}

/// The wall clock from which the server makes tokens, in microseconds since 1970.
pub(crate) fn clock(info: &[u8]) -> Option<u64> {
    field(info, "server_time_usec")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &[u8] =
        b"# Server\r\nredis_mode:standalone\r\nrun_id:6d1f\r\nserver_time_usec:1770000000000123\r\nhz:10\r\n";

    #[test]
    fn a_server_tells_its_id_and_its_clock() {
        assert_eq!(run_id(INFO), Some("6d1f"));
        assert_eq!(clock(INFO), Some(1_770_000_000_000_123));
    }

    #[test]
    fn what_a_server_does_not_tell_is_not_known() {
        for info in [
            &b""[..],
            b"run_id\r\nserver_time_usec:soon\r\n",
            b"\xff\r\nserver_time_usec:5\r\n",
        ] {
            assert_eq!((run_id(info), clock(info)), (None, None));
        }
    }
}
