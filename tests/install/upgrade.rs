//! The steps of docs/install.md, "Upgrading: replicas first, then a failover", by the page's own commands.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use mortise_harness::{
    Server, Shutdown, cmd, eventually, granted, hold_of, int, module_path, try_cmd, wait_for_sync,
    waiter,
};
use tempfile::TempDir;

use crate::own_server::{run, said};
use crate::page::block;

/// Unpacks the newer package, which replaces the module's file.
fn unpack(module: &Path) {
    let newer = module.with_extension("new");
    fs::copy(module_path(), &newer).unwrap();
    fs::rename(newer, module).unwrap();
}

/// Whether the server runs with the present file.
fn runs_with(server: &Server, module: &Path) -> bool {
    let inode = format!(" {} ", fs::metadata(module).unwrap().ino());
    let maps = fs::read_to_string(format!("/proc/{}/maps", server.pid())).unwrap();
    maps.lines().any(|line| line.contains(&inode))
}

/// Runs the page's commands on the machine of `server`.
fn follow(page: &str, server: &mut Server, module: &Path) {
    for line in block(page).lines() {
        if line.starts_with("sudo apt install ./mortise_") {
            unpack(module);
            assert!(!runs_with(server, module), "nothing is restarted");
        } else if line == "sudo systemctl restart redis-server" {
            server.restart(Shutdown::AsConfigured);
            assert!(runs_with(server, module));
        } else if let Some(rest) = line.strip_prefix("redis-cli ") {
            let here = format!("redis-cli -p {} {rest}", server.port());
            eventually(line, || {
                let (content, said) = said(&run(Command::new("sh").args(["-c", &here])));
                if content { Ok(()) } else { Err(said) }
            });
            if rest == "CONFIG REWRITE" {
                keep_role(server);
            }
        } else {
            panic!("the test cannot run: {line}");
        }
    }
}

/// Makes the test start the server next time in the role that it has saved.
fn keep_role(server: &mut Server) {
    let conf = fs::read_to_string(server.dir().join("redis.conf")).unwrap();
    let role = conf
        .lines()
        .find_map(|line| line.strip_prefix("replicaof "));
    match role {
        Some(primary) => server.set_config("replicaof", primary),
        None => server.set_config("replicaof", "no one"),
    }
}

/// The token by which `owner` holds on `server`.
fn token_at(server: &Server, owner: &str) -> i64 {
    hold_of(&mut server.connect(), "held", owner).map_or(0, |hold| hold.token)
}

fn role(server: &Server) -> String {
    server.info("replication").remove("role").unwrap()
}

#[test]
fn upgrading_replicas_and_then_their_primary_keeps_every_lock_and_its_token() {
    let dir = TempDir::new().unwrap();
    // Each machine has one file of the module.
    let modules = ["one", "two", "three"].map(|name| dir.path().join(format!("{name}.so")));
    for module in &modules {
        fs::copy(module_path(), module).unwrap();
    }
    let builder = |n: usize| {
        let module = modules[n].to_str().unwrap();
        Server::builder()
            .alone()
            .without_module()
            .config("loadmodule", module)
    };
    let mut primary = builder(0).start();
    let mut replicas = [1, 2].map(|n| builder(n).replica_of(&primary).start());
    for replica in &replicas {
        wait_for_sync(&primary, replica);
    }
    let mut conn = primary.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "held", "a", 600_000));

    for (replica, module) in replicas.iter_mut().zip(&modules[1..]) {
        follow("upgrade-replica", replica, module);
        wait_for_sync(&primary, replica);
        assert_eq!(token_at(replica, "a"), token);
    }

    let mut sent_away = waiter!(primary, "LOCK.ACQUIRE", "held", "b", 600_000, "WAIT", 0);
    follow("upgrade-failover", &mut primary, &modules[0]);
    let error = sent_away.try_recv().unwrap_err();
    assert!(error.starts_with("UNBLOCKED "), "{error}");
    eventually("the old one follows", || role(&primary) == "slave");
    let promoted = eventually("one of them is the primary", || {
        replicas
            .iter()
            .position(|replica| role(replica) == "master")
    });
    let port = replicas[promoted].port();
    cmd!(
        replicas[1 - promoted].connect(),
        "REPLICAOF 127.0.0.1 {port}"
    );
    follow("upgrade-roles", &mut primary, &modules[0]);
    for (replica, module) in replicas.iter_mut().zip(&modules[1..]) {
        follow("upgrade-roles", replica, module);
    }
    let (promoted, other) = (&replicas[promoted], &replicas[1 - promoted]);

    let mut again = waiter!(promoted, "LOCK.ACQUIRE", "held", "b", 600_000, "WAIT", 0);
    follow("upgrade-replica", &mut primary, &modules[0]);
    let mut conn = promoted.connect();
    assert_eq!(token_at(promoted, "a"), token);
    assert_eq!(int(&cmd!(conn, "LOCK.RENEW", "held", "a", 600_000)), token);
    assert!(try_cmd!(primary.connect(), "LOCK.RELEASE", "held", "a").is_err());
    cmd!(conn, "LOCK.RELEASE", "held", "a");
    assert!(granted(&mut again) > token);
    for server in [&primary, other] {
        eventually("all have it", || token_at(server, "b") > token);
    }
}
