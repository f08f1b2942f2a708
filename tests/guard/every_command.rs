//! Every command of the server, with any arguments, gets a reply inside a guard without a crash.

use std::collections::BTreeSet;

use mortise_harness::redis::Cmd;
use mortise_harness::{Conn, Server, array, assert_same_data, cmd, command, int, text};

use super::held;

/// Commands that would call another server or compute for long.
const LEFT_OUT: [&str; 2] = ["MIGRATE", "PFSELFTEST"];

const ARGUMENTS: &[&[&str]] = &[
    &[],
    &["key"],
    &["data"],
    &["data", "1"],
    &["0", "0"],
    &["data", "data", "key"],
    &["1", "data", "LEFT", "1"],
    &["data", "0", "-1", "1", "x", "y"],
];

/// Every command, and every subcommand.
fn commands(conn: &mut Conn) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    for described in array(&cmd!(conn, "COMMAND")) {
        let described = array(described);
        found.insert(vec![text(&described[0])]);
        for below in described.get(9).map(array).unwrap_or_default() {
            let name = text(&array(below)[0]);
            found.insert(name.split('|').map(str::to_owned).collect());
        }
    }
    found.retain(|words| !LEFT_OUT.contains(&words[0].to_uppercase().as_str()));
    found
}

/// By `a`'s present token, whatever the last command has done to it.
fn guard(conn: &mut Conn, command: &[String], arguments: &[&str]) -> Cmd {
    cmd!(conn, "DEL key");
    let mut guard = command!("LOCK.GUARD", "key", "a", held(conn, "key"));
    guard.arg(command).arg(arguments);
    guard
}

#[test]
fn no_command_inside_a_guard_harms_the_server() {
    let primary = Server::builder().config("appendonly", "yes").start();
    let replica = primary.start_replica();
    let mut conn = primary.connect();
    let commands = commands(&mut conn);
    assert!(commands.len() > 250, "{}", commands.len());
    let script = "return redis.pcall(unpack(ARGV))";
    for command in &commands {
        for arguments in ARGUMENTS {
            let guarded = guard(&mut conn, command, arguments);
            let mut in_script = command!("EVAL", script, 0);
            in_script.arg(guarded.args_iter().map(word).collect::<Vec<_>>());
            for sent in [&guarded, &in_script] {
                if let Err(error) = conn.try_run(sent) {
                    assert!(
                        !error.starts_with("connection closed"),
                        "{command:?} {error}"
                    );
                }
            }
        }
    }
    assert_same_data(&primary, &replica);
}

fn word(arg: mortise_harness::redis::Arg<&[u8]>) -> Vec<u8> {
    match arg {
        mortise_harness::redis::Arg::Simple(bytes) => bytes.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Redis 7.0 and Valkey 8 cannot run it, so it is refused by name; the others reply as in a transaction.
#[test]
fn a_script_that_waits_for_replicas_inside_a_guard_gets_a_reply_under_any_command_name() {
    for hidden in ["CONFIG hidden", "COMMAND hidden"] {
        let server = Server::builder()
            .config("rename-command", "WAIT tarry")
            .config("rename-command", hidden)
            .start();
        assert_waits_or_is_refused(&server, "tarry");
    }
}

#[track_caller]
fn assert_waits_or_is_refused(server: &Server, wait: &str) {
    let mut conn = server.connect();
    let guarded = guard(&mut conn, &[wait.to_owned()], &["0", "0"]);
    let mut in_script = command!("EVAL", "return redis.pcall(unpack(ARGV))", 0);
    in_script.arg(guarded.args_iter().map(word).collect::<Vec<_>>());
    match conn.try_run(&in_script) {
        Ok(replicas) => assert_eq!(int(&replicas), 0),
        Err(refusal) => {
            let names_it = refusal.to_lowercase().contains("wait");
            assert!(names_it && refusal.contains("not allowed"), "{refusal}");
        }
    }
    assert_eq!(int(&cmd!(conn, "EXISTS key")), 1);
}
