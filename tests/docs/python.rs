//! The guides' examples in Python run unchanged, with the current redis-py.
//!
//! This needs python3 with its module venv (`scripts/setup tests` installs it on Debian and Ubuntu), and PyPI, from which pip
//! installs redis-py into `target`. Without PyPI an earlier installation is used.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;

use mortise_harness::{Server, cmd, eventually, int, waiter};

use crate::pages;

/// The pages that use redis-py without our library.
const GUIDE: &str = "docs/clients.md";

/// A Python with redis-py.
static PYTHON: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
    let python = dir.join("bin/python");
    if !python.exists() {
        make_venv(&dir);
    }
    let install = ["-m", "pip", "install", "--quiet", "--upgrade", "redis"];
    let installed = run(Command::new(&python).args(install));
    if !installed.status.success() {
        let known = run(Command::new(&python).args(["-c", "import redis"]));
        let why = String::from_utf8_lossy(&installed.stderr);
        assert!(
            known.status.success(),
            "missing here: redis-py, and PyPI, where pip would get it from. pip says:\n{why}"
        );
        eprintln!("redis-py may not be the current one: pip cannot ask PyPI:\n{why}");
    }
    python
});

fn make_venv(dir: &Path) {
    let mut said = String::new();
    // The first one in the path may have no venv.
    for python in ["python3", "/usr/bin/python3"] {
        let made = Command::new(python).args(["-m", "venv"]).arg(dir).output();
        match made {
            Ok(output) if output.status.success() => return,
            Ok(output) => said += &String::from_utf8_lossy(&output.stdout),
            Err(error) => said += &format!("{python}: {error}\n"),
        }
        let _ = fs::remove_dir_all(dir);
    }
    panic!(
        "missing here: python3 with its module venv (`scripts/setup tests` installs it):\n{said}"
    );
}

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

/// The guide's examples, ready to be run. On a fresh machine pip may take longer than a test's leases, so it ends before a test
/// takes its first lock.
fn examples() -> Vec<String> {
    LazyLock::force(&PYTHON);
    let blocks = pages::blocks(GUIDE).into_iter();
    let examples = blocks.filter(|block| block.language == "python");
    examples.map(|block| block.text).collect()
}

/// Runs `example` against `server`, whose port replaces the one in the example.
fn start(example: &str, server: &Server) -> Child {
    let port = "port=6379";
    assert!(example.contains(port), "{example}");
    let example = example.replace(port, &format!("port={}", server.port()));
    Command::new(&*PYTHON)
        .args(["-W", "error", "-c", &example])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn assert_ends_well(child: Child) {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn every_example_in_python_takes_a_lock_and_leaves_nothing_behind() {
    let examples = examples();
    assert!(!examples.is_empty());
    for example in examples {
        let server = Server::start();
        assert_ends_well(start(&example, &server));
        assert_eq!(server.gauge("total_grants"), 1);
        assert_eq!(server.gauge("total_releases"), 1);
        assert_eq!((server.gauge("locks"), server.gauge("waiters")), (0, 0));
    }
}

#[test]
fn every_example_in_python_that_waits_is_granted_in_its_turn() {
    for example in examples() {
        let server = Server::start();
        let mut conn = server.connect();
        cmd!(conn, "LOCK.ACQUIRE", "stock:42", "other", 60_000);
        let child = start(&example, &server);
        eventually("it waits", || server.gauge("waiters") == 1);
        let next = waiter!(server, "LOCK.ACQUIRE stock:42 next 60000 WAIT 0");
        cmd!(conn, "LOCK.RELEASE", "stock:42", "other");
        assert_ends_well(child);
        assert_eq!(server.gauge("total_handoffs"), 2);
        drop(next);
    }
}

#[test]
fn every_example_in_python_waits_for_its_whole_time_with_one_request() {
    for example in examples() {
        let server = Server::start();
        let mut conn = server.connect();
        cmd!(conn, "LOCK.ACQUIRE", "stock:42", "other", 60_000);
        // Longer than redis-py's default time-out for a reply.
        assert!(example.contains("5_000"));
        let child = start(&example.replace("5_000", "6_500"), &server);
        assert_ends_well(child);
        assert_eq!(server.calls("LOCK.ACQUIRE"), 2);
        assert_eq!(server.gauge("total_timeouts"), 1);
        assert_eq!(int(&cmd!(conn, "EXISTS", "stock:42:count")), 0);
        assert_eq!(server.gauge("waiters"), 0);
    }
}
