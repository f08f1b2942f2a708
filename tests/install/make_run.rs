//! `make run`, as a new user types it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use mortise_harness::{Port, eventually, module_path};
use tempfile::TempDir;

use crate::own_server::{program, root, run, said};

struct Running {
    port: Port,
    make: Child,
}

impl Running {
    /// In a folder with the module, which need not be built.
    fn start(folder: &Path) -> Running {
        let port = Port::claim();
        let make = Command::new("make")
            .current_dir(folder)
            .args([
                "--old-file",
                "build",
                "run",
                &format!("PORT={}", port.number()),
            ])
            .env("MORTISE_SERVER", program())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let running = Running { port, make };
        eventually("it answers", || running.cli(&["PING"]) == "PONG");
        running
    }

    fn cli(&self, words: &[&str]) -> String {
        let mut cli = Command::new("redis-cli");
        cli.args(["-p", &self.port.number().to_string()]);
        cli.args(words);
        said(&run(&mut cli)).1.trim_end().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cli(&["SHUTDOWN", "NOSAVE"]);
        let _ = self.make.wait();
    }
}

#[test]
fn servers_on_two_ports_have_separate_data() {
    let folder = TempDir::new().unwrap();
    for file in ["Makefile", "redis.conf"] {
        fs::copy(root().join(file), folder.path().join(file)).unwrap();
    }
    fs::create_dir_all(folder.path().join("target/release")).unwrap();
    let module = folder.path().join("target/release/libmortise.so");
    symlink(module_path(), module).unwrap();

    let one = Running::start(folder.path());
    let token = one.cli(&["LOCK.ACQUIRE", "stock:42", "alice", "600000"]);
    assert!(token.parse::<u64>().is_ok(), "{token}");
    let other = Running::start(folder.path());
    assert_eq!(other.cli(&["LOCK.INFO", "stock:42"]), "");
    assert_ne!(
        one.cli(&["CONFIG", "GET", "dir"]),
        other.cli(&["CONFIG", "GET", "dir"])
    );
}
