//! A server whose memory valgrind watches: what it reads or writes wrongly becomes a fault of the test.

use std::env;
use std::fs;
use std::path::Path;

/// The beginning of the names of valgrind's logs in a server's folder. There is one for each process.
const LOG: &str = "valgrind-";

/// valgrind can watch the servers of this test run. Not those that a script starts through another system's dynamic
/// linker, whose symbols are not here.
pub fn valgrind_can_watch() -> bool {
    let program = env::var("MORTISE_SERVER");
    !program.is_ok_and(|program| program.contains("target/servers"))
}

/// The command that runs `program` so. Its allocator is a library of its own, which valgrind has to
/// know.
pub(crate) fn command(dir: &Path, program: &str) -> Vec<String> {
    let log = dir.join(format!("{LOG}%p"));
    [
        "valgrind",
        "--quiet",
        "--num-callers=30",
        // An optimised build compares the unused part of an enum and then ignores the outcome.
        "--undef-value-errors=no",
        "--trace-children=yes",
        "--soname-synonyms=somalloc=*jemalloc*",
        &format!("--log-file={}", log.display()),
        program,
    ]
    .map(str::to_owned)
    .to_vec()
}

/// What valgrind has found so far.
pub(crate) fn findings(dir: &Path) -> Option<String> {
    let entries = dir.read_dir().ok()?;
    let logs = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(LOG));
    let text: String = logs
        .filter_map(|entry| fs::read_to_string(entry.path()).ok())
        .collect();
    (!text.is_empty()).then_some(text)
}
