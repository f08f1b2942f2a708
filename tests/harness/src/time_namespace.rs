//! A server in a time namespace, as a container may be: its boot-time clock is ahead of the machine's, under the same boot id.

use std::process::Command;

/// Whether servers can be put into a time namespace here. That takes a kernel that has them, and rights.
pub fn time_namespaces_work() -> bool {
    let mut uptime = Command::new("unshare");
    uptime.args(["--time", "--boottime", "1000000000", "cat", "/proc/uptime"]);
    let text = uptime
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    String::from_utf8_lossy(&text)
        .split('.')
        .next()
        .and_then(|seconds| seconds.parse::<u64>().ok())
        .is_some_and(|seconds| seconds >= 1_000_000_000)
}

/// The command that runs `program` with a boot-time clock that is `offset` seconds ahead.
pub(crate) fn command(offset: u64, program: &str) -> Vec<String> {
    let offset = offset.to_string();
    ["unshare", "--time", "--boottime", &offset, program]
        .map(str::to_owned)
        .to_vec()
}
