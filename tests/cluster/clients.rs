//! Cluster: clients that do not know the module's commands still send each to the node that has its key.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use mortise_harness::redis::cluster::{ClusterClient, ClusterConnection};
use mortise_harness::redis::{Cmd, Value};
use mortise_harness::{Cluster, Resharding, Server, cmd, command, hold_of};

/// The commands that `a` sends about a lock that it holds twice, and the replies; -1 for the token.
fn conversation(key: &str) -> Vec<(Cmd, i64)> {
    vec![
        (command!("LOCK.ACQUIRE", key, "a", 60_000), -1),
        (command!("LOCK.WLOCK", key, "a", 60_000, "HOLDS", 2), -1),
        (command!("LOCK.RLOCK", key, "a", 60_000, "WAIT", 10), -1),
        (command!("LOCK.RENEW", key, "a", 60_000), -1),
        (command!("LOCK.FENCE", key, "a", 1), -1),
        (command!("LOCK.RELEASE", key, "a", "WRITE"), 2),
    ]
}

fn answer(conn: &mut ClusterConnection, command: &Cmd) -> Value {
    command.query(conn).expect("an answer")
}

/// Sends all of these commands, and checks the lock.
fn converse(key: &str, mut ask: impl FnMut(&Cmd) -> Value) {
    let mut token = None;
    for (command, expected) in conversation(key) {
        let reply = ask(&command);
        let Value::Int(reply) = reply else {
            panic!("{key}: {reply:?}")
        };
        if expected == -1 {
            assert_eq!(*token.get_or_insert(reply), reply, "one hold, one token");
        } else {
            assert_eq!(reply, expected);
        }
    }
    let info = ask(&command!("LOCK.INFO", key, "OWNER", "a"));
    let hold = mortise_harness::Hold::read(&info);
    assert_eq!((hold.counts(), Some(hold.token)), ((1, 1), token));
}

fn client_of(cluster: &Cluster) -> ClusterConnection {
    // It knows only one node at first.
    let client = ClusterClient::new(vec![cluster.primaries[0].url()]).expect("a url");
    client.get_connection().expect("the cluster answers")
}

#[test]
fn a_cluster_client_sends_every_command_to_the_node_that_has_the_key() {
    let cluster = Cluster::start(3, Server::builder);
    let mut conn = client_of(&cluster);
    for n in 0..30 {
        converse(&format!("key-{n}"), |command| answer(&mut conn, command));
    }
    for node in &cluster.primaries {
        assert!(node.gauge("locks") > 0, "each has some of them");
        assert_eq!(node.errors("MOVED"), 0, "and no node replied MOVED");
    }
}

#[test]
fn a_cluster_client_follows_moved_with_every_command() {
    let moving = Resharding::of("key");
    let (from, to) = (moving.from(), moving.to());
    // Each client has the old map of slots.
    let stale = (0..7).map(|_| client_of(&moving.cluster));
    let mut stale: Vec<ClusterConnection> = stale.collect();
    moving.begin();
    moving.end();
    converse("key", |command| {
        let mut conn = stale.pop().expect("one for each command");
        answer(&mut conn, command)
    });
    assert!(from.errors("MOVED") >= 7, "{}", from.errors("MOVED"));
    assert!(hold_of(&mut to.connect(), "key", "a").is_some());
}

#[test]
fn a_cluster_client_follows_ask_with_every_command() {
    let moving = Resharding::of("key");
    let mut conn = client_of(&moving.cluster);
    moving.begin();
    converse("key", |command| answer(&mut conn, command));
    assert_eq!(moving.from().errors("ASK"), 7);
    moving.migrate();
    moving.end();
    assert!(hold_of(&mut moving.to().connect(), "key", "a").is_some());
}

/// `redis-cli` or `valkey-cli`: the one in the folder of the server under test, or on the path.
fn redis_cli() -> String {
    let server = env::var("MORTISE_SERVER").unwrap_or_default();
    let beside = Path::new(&server).with_file_name("redis-cli");
    let beside = beside.to_string_lossy();
    let names = [&*beside, "redis-cli", "valkey-cli"];
    let runs = |name: &&&str| {
        let trial = Command::new(name).arg("--version").output();
        trial.is_ok_and(|output| output.status.success())
    };
    let found = names.iter().find(runs);
    let found =
        found.unwrap_or_else(|| panic!("none of {names:?} is here; scripts/setup installs one"));
    (*found).to_owned()
}

/// Runs `redis-cli -c` with the address of `node`.
fn ask_by_hand(node: &Server, command: &Cmd) -> Value {
    let words = command.args_iter().map(|word| match word {
        mortise_harness::redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    });
    let program = redis_cli();
    let output = Command::new(&program)
        .args(["-c", "--raw", "-p", &node.port().to_string()])
        .args(words)
        .stdin(Stdio::null())
        .output();
    let output = output.expect("it ran a moment ago");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    match &lines[..] {
        [line] => Value::Int(line.parse().unwrap_or_else(|_| panic!("{line}"))),
        lines => Value::Array(lines.iter().map(|line| value(line)).collect()),
    }
}

fn value(line: &str) -> Value {
    let number = line.parse().map(Value::Int);
    number.unwrap_or_else(|_| Value::BulkString(line.into()))
}

#[test]
fn redis_cli_follows_moved_and_ask_with_every_command() {
    let moving = Resharding::of("key");
    let (from, to) = (moving.from(), moving.to());
    // The other node redirects to the node that has the key.
    converse("key", |command| ask_by_hand(to, command));
    assert_eq!(to.errors("MOVED"), 7);
    assert!(hold_of(&mut from.connect(), "key", "a").is_some());
    cmd!(from.connect(), "DEL", "key");
    moving.begin();
    converse("key", |command| ask_by_hand(from, command));
    assert_eq!(from.errors("ASK"), 7);
    moving.end();
    assert!(hold_of(&mut to.connect(), "key", "a").is_some());
}
