//! Parses the reply to `INFO server`, which has one field in each line: `name:value`.

use crate::value::Token;

/// Other lines may be paths, which are any bytes.
fn field<'a>(info: &'a [u8], name: &str) -> Option<&'a str> {
    let mut lines = info.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b":"))?;
    std::str::from_utf8(value.trim_ascii_end()).ok()
}

/// What no two server processes have in common.
pub(crate) fn run_id(info: &[u8]) -> Option<&str> {
    field(info, "run_id")
}

/// The wall clock from which the server makes tokens, in microseconds since 1970.
pub(crate) fn clock(info: &[u8]) -> Option<u64> {
    let micros: u64 = field(info, "server_time_usec")?.parse().ok()?;
    Token::try_from(micros).ok().map(Token::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &[u8] =
        b"# Server\r\nconfig_file:/\xff\r\nrun_id:6d1f\r\nserver_time_usec:1770000000000123\r\n";

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
            b"server_time_usec:9007199254740992\r\n",
            b"server_time_usec:18446744073709551616\r\n",
        ] {
            assert_eq!((run_id(info), clock(info)), (None, None));
        }
    }
}
