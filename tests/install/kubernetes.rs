//! The scripts and settings of packaging/kubernetes with three servers and three Sentinels, by the commands of docs/install.md. The pods
//! are processes: `tests/install/kubectl` stands in for the real one.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use mortise_harness::{eventually_within, module_path};
use tempfile::TempDir;

use crate::own_server::{program, root, run, said};
use crate::page::block;

const PODS: [&str; 3] = ["mortise-0", "mortise-1", "mortise-2"];
/// How docs/install.md makes a password.
const RANDOM: &str = "$(head -c 24 /dev/urandom | base64 | tr -dc a-zA-Z0-9)";
const PATIENCE: Duration = Duration::from_secs(90);

/// Three pods that are not started yet.
struct Pods {
    dir: TempDir,
    /// The first three numbers of their addresses.
    net: String,
    port: u16,
}

impl Pods {
    fn new() -> Pods {
        let pods = Pods {
            dir: TempDir::new().unwrap(),
            net: "127.0.77".to_owned(),
            port: free_ports(),
        };
        pods.copy_configuration();
        pods.make_programs();
        pods
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The project's files, with this module's path and shorter times.
    fn copy_configuration(&self) {
        fs::create_dir(self.path("config")).unwrap();
        for entry in fs::read_dir(root().join("packaging/kubernetes")).unwrap() {
            let from = entry.unwrap().path();
            fs::copy(&from, self.path("config").join(from.file_name().unwrap())).unwrap();
        }
        let conf = self.path("config/redis.conf");
        let text = fs::read_to_string(&conf).unwrap();
        let installed = "/usr/lib/redis/modules/libmortise.so";
        assert!(text.contains(installed));
        let text = text.replace(installed, module_path().to_str().unwrap());
        let faster = "min-replicas-max-lag 2\nlock.max-lease 2000\nlock.grace 7000\n";
        fs::write(conf, text + faster).unwrap();
    }

    /// A folder at the front of PATH with the server under test and kubectl.
    fn make_programs(&self) {
        fs::create_dir(self.path("bin")).unwrap();
        let server = format!("#!/bin/sh\nexec {} \"$@\"\n", which(&program()));
        fs::write(self.path("bin/redis-server"), server).unwrap();
        fs::copy(
            root().join("tests/install/kubectl"),
            self.path("bin/kubectl"),
        )
        .unwrap();
        for name in ["redis-server", "kubectl"] {
            let rights = fs::Permissions::from_mode(0o755);
            fs::set_permissions(self.path("bin").join(name), rights).unwrap();
        }
    }

    /// Runs shell commands, and returns their output.
    #[track_caller]
    fn shell(&self, lines: &str) -> String {
        let path = std::env::var("PATH").unwrap();
        let mut bash = Command::new("bash");
        bash.args(["-e", "-o", "pipefail", "-c", lines])
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("PODS", self.path("pods"))
            .env("CONFIG", self.path("config"))
            .env("NET", &self.net)
            .env("PORT", self.port.to_string())
            .env("SENTINEL_PORT", (self.port + 1).to_string())
            .env("DOWN_AFTER", "5000")
            .env("FAILOVER_TIMEOUT", "10000");
        let (content, said) = said(&run(&mut bash));
        assert!(content, "{lines}: {said}\n{}", self.logs());
        said
    }

    fn logs(&self) -> String {
        let mut all = String::new();
        for pod in PODS {
            for part in ["server.log", "sentinel.log"] {
                let text = fs::read_to_string(self.path("pods").join(pod).join(part));
                let text = text.unwrap_or_default();
                let lines: Vec<&str> = text.lines().rev().take(40).collect();
                let end: Vec<&str> = lines.into_iter().rev().collect();
                all += &format!("--- {pod} {part}\n{}\n", end.join("\n"));
            }
        }
        all
    }

    /// The pod that is the primary, as the Sentinel of `pod` reports.
    fn primary_by(&self, pod: &str) -> Option<String> {
        let ask = format!(
            "kubectl exec {pod} -c sentinel -- redis-cli -p 26379 SENTINEL get-master-addr-by-name mortise || true"
        );
        let said = self.shell(&ask);
        let number: u16 = said
            .lines()
            .next()?
            .strip_prefix(&format!("{}.", self.net))?
            .parse()
            .ok()?;
        Some(format!("mortise-{}", number - 1))
    }

    /// The primary, once all Sentinels except the one with `old` agree that it is not `old`.
    fn primary_but(&self, old: Option<&str>) -> String {
        eventually_within(PATIENCE, "all Sentinels have the same new primary", || {
            let said: Vec<_> = PODS
                .iter()
                .filter(|pod| Some(**pod) != old)
                .map(|pod| self.primary_by(pod))
                .collect();
            match &said[0] {
                Some(one)
                    if said.iter().all(|each| each == &said[0]) && Some(one.as_str()) != old =>
                {
                    Ok(one.clone())
                }
                _ => Err(format!("{said:?}\n{}", self.logs())),
            }
        })
    }

    fn server(&self, pod: &str, words: &str) -> String {
        self.shell(&format!(
            "kubectl exec {pod} -c server -- redis-cli {words} || true"
        ))
    }

    /// Waits until `pod` grants a lock: after its grace, with all replicas attached. Returns the token.
    fn granted_by(&self, pod: &str) -> u64 {
        eventually_within(PATIENCE, "a lock is granted", || {
            let said = self.server(pod, "LOCK.ACQUIRE key somebody 1000");
            said.trim().parse::<u64>().map_err(|_| said)
        })
    }

    fn await_all_ready(&self) {
        let wait = block("kubernetes");
        self.shell(
            wait.lines()
                .find(|line| line.starts_with("kubectl wait"))
                .unwrap(),
        );
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        self.shell("kubectl stop");
    }
}

/// The path of a program, because a script of the same name must not call itself.
fn which(program: &str) -> String {
    let (content, said) = said(&run(Command::new("sh").args([
        "-c",
        "command -v \"$0\"",
        program,
    ])));
    assert!(content, "no {program}");
    said.trim().to_owned()
}

/// A port that is free on the three addresses, and the next one.
fn free_ports() -> u16 {
    let start = 31_000 + (std::process::id() % 400) as u16 * 2;
    let free = |port: &u16| {
        (1..=3).all(|pod| {
            [*port, *port + 1]
                .iter()
                .all(|port| TcpListener::bind((format!("127.0.77.{pod}"), *port)).is_ok())
        })
    };
    (start..32_700).step_by(2).find(free).expect("free ports")
}

#[test]
fn three_pods_keep_the_promise_over_an_upgrade_a_crash_and_the_loss_of_all() {
    let pods = Pods::new();
    // Any password will do.
    let create = block("kubernetes").replace(RANDOM, r#"'a"b\c d&$x'"#);
    assert!(!create.contains("urandom"), "{create}");
    let said = pods.shell(&create);
    assert!(said.starts_with("127.0.77.1\n"), "{said}");
    assert!(said.contains("lock_failover_safe:1"), "{said}");
    let first = pods.granted_by("mortise-0");
    // Without the password neither a server nor a Sentinel replies.
    for part in ["server", "sentinel"] {
        let said = pods.shell(&format!(
            "kubectl exec mortise-0 -c {part} -- redis-cli {} --no-auth-warning -a wrong PING || true",
            if part == "server" { "" } else { "-p 26379" }
        ));
        assert!(!said.contains("PONG"), "{said}");
    }

    // The primary is upgraded last, and hands over before it stops.
    pods.primary_but(None);
    pods.shell(&block("kubernetes-upgrade"));
    let second = pods.primary_but(Some("mortise-0"));
    let token = pods.granted_by(&second);
    assert!(token > first);

    pods.shell(&format!("kubectl crash {second}"));
    let third = pods.primary_but(Some(&second));
    pods.shell(&format!("kubectl revive {second}"));
    pods.await_all_ready();
    let last = pods.granted_by(&third);
    assert!(last > token);
    assert!(
        pods.server(&third, "INFO lock")
            .contains("lock_failover_safe:1")
    );

    // The old primary is primary again, though no Sentinel can be asked.
    pods.shell("kubectl crash-all");
    pods.await_all_ready();
    assert_eq!(pods.primary_but(None), third);
    assert!(pods.granted_by(&third) > last);
}
