//! A server with its own configuration file, as an operator has, and a prefix with Mortise installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use mortise_harness::{eventually, module_path};
use tempfile::TempDir;

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The server program under test.
pub(crate) fn program() -> String {
    std::env::var("MORTISE_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

pub(crate) fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

/// A command's output, and whether it succeeded.
pub(crate) fn said(output: &Output) -> (bool, String) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// A folder that `make install` has filled.
pub(crate) struct Prefix {
    dir: TempDir,
}

impl Prefix {
    pub(crate) fn new() -> Prefix {
        let prefix = Prefix {
            dir: TempDir::new().unwrap(),
        };
        let (content, said) = prefix.make(&["install"]);
        assert!(content, "{said}");
        prefix
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn module(&self) -> PathBuf {
        self.path().join("lib/redis/modules/libmortise.so")
    }

    pub(crate) fn make(&self, words: &[&str]) -> (bool, String) {
        let mut make = Command::new("make");
        make.current_dir(root()).arg("--silent");
        make.arg(format!("PREFIX={}", self.path().display()));
        make.arg(format!("MODULE={}", module_path().display()));
        make.args(words);
        said(&run(&mut make))
    }
}

/// A server, its configuration and its data. It listens on a socket alone.
pub(crate) struct OwnServer {
    dir: TempDir,
    child: Option<Child>,
}

impl OwnServer {
    /// Writes a configuration with these further lines, and starts nothing.
    pub(crate) fn new(lines: &str) -> OwnServer {
        let dir = TempDir::new().unwrap();
        let at = dir.path().display();
        let conf = format!(
            "port 0\nunixsocket {at}/socket\ndir {at}\nlogfile {at}/log\nsave 3600 1\n{lines}"
        );
        fs::write(dir.path().join("redis.conf"), conf).unwrap();
        OwnServer { dir, child: None }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn conf(&self) -> String {
        self.file("redis.conf").display().to_string()
    }

    pub(crate) fn conf_text(&self) -> String {
        fs::read_to_string(self.conf()).unwrap()
    }

    pub(crate) fn append(&self, lines: &str) {
        fs::write(self.conf(), self.conf_text() + lines).unwrap();
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    /// Starts the server. False if it ends instead.
    pub(crate) fn try_start(&mut self) -> bool {
        let _ = fs::remove_file(self.file("log"));
        let mut child = Command::new(program())
            .arg(self.conf())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let up = eventually("it replies or ends", || {
            if child.try_wait().unwrap().is_some() {
                return Some(false);
            }
            let answer = self.cli(&["PING"]);
            (answer == "PONG" || answer.starts_with("NOAUTH")).then_some(true)
        });
        self.child = Some(child);
        up
    }

    #[track_caller]
    pub(crate) fn start(&mut self) {
        assert!(self.try_start(), "{}", self.log());
    }

    /// Stops the server as a service manager does.
    pub(crate) fn stop(&mut self) {
        let mut child = self.child.take().expect("it runs");
        self.cli(&["SHUTDOWN"]);
        child.wait().unwrap();
    }

    pub(crate) fn restart(&mut self) {
        self.stop();
        self.start();
    }

    /// The output of redis-cli.
    pub(crate) fn cli(&self, words: &[&str]) -> String {
        let mut cli = Command::new("redis-cli");
        cli.arg("-s").arg(self.file("socket")).args(words);
        said(&run(&mut cli)).1.trim_end().to_owned()
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
