//! A server whose memory valgrind watches: a wrong read or write fails the test.

//!
//! `MORTISE_VALGRIND` has valgrind watch every server that it can, and look for what the module loses: such a server ends by
//! itself. It has threads for its clients and frees lazily, and another module (`actor.c`) receives every event.

use std::env;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The beginning of the names of valgrind's logs in a server's folder. There is one for each process.
const LOG: &str = "valgrind-";

/// Whether valgrind can watch the servers of this test run. It cannot if a script starts them through another system's
/// dynamic linker, whose symbols are missing here.
pub fn valgrind_can_watch() -> bool {
    let program = env::var("MORTISE_SERVER");
    !program.is_ok_and(|program| program.contains("target/servers"))
}

/// Whether valgrind watches every server that it can.
pub(crate) fn watches_all() -> bool {
    env::var_os("MORTISE_VALGRIND").is_some_and(|value| !value.is_empty()) && valgrind_can_watch()
}

/// The time limit for something that takes up to `usual` without valgrind.
pub(crate) fn patience(usual: Duration) -> Duration {
    if watches_all() { usual * 6 } else { usual }
}

/// The command that runs `program` under valgrind, which has to know the library of its
/// allocator.
pub(crate) fn command(dir: &Path, program: &str) -> Vec<String> {
    let log = dir.join(format!("{LOG}%p"));
    [
        "valgrind",
        "--quiet",
        "--num-callers=30",
        // An optimised build compares the unused part of an enum and ignores the result.
        "--undef-value-errors=no",
        "--trace-children=yes",
        "--leak-check=full",
        "--show-leak-kinds=definite",
        "--soname-synonyms=somalloc=*jemalloc*",
        &format!("--log-file={}", log.display()),
        program,
    ]
    .map(str::to_owned)
    .to_vec()
}

/// What valgrind has found so far: every misuse, and the module's leaks. The server's own leaks do not count.
pub(crate) fn findings(dir: &Path) -> Option<String> {
    let entries = dir.read_dir().ok()?;
    let logs = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(LOG));
    let mut found = String::new();
    for log in logs.filter_map(|entry| fs::read_to_string(entry.path()).ok()) {
        // Behind each finding there is a line of the process's number alone.
        let blocks = log.split_inclusive("== \n");
        let lost = |block: &&str| block.contains(" in loss record ");
        found.extend(blocks.filter(|block| !lost(block) || block.contains("mortise")));
    }
    (!found.is_empty()).then_some(found)
}
