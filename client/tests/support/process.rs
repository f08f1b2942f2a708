//! Tests that run a part of themselves in another process: an ignored test of the same program.

use std::process::Command;

use mortise_harness::Server;

const URL: &str = "MORTISE_TEST_URL";

/// Runs the ignored `test` alone, for which [`url`] is the server's.
pub(crate) fn other_half(test: &str, server: &Server) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture", "--ignored"])
        .env(URL, server.url());
    command
}

/// The server's URL; `None` if nobody has started this process as the other half of a test.
pub(crate) fn url() -> Option<String> {
    std::env::var(URL).ok()
}
