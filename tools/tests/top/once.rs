//! One look, for scripts.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use mortise_harness::{Cluster, Server, cmd, int, queue};

use crate::{TOP, builder};

fn once(args: &[&str], envs: &[(&str, &str)]) -> Output {
    Command::new(TOP)
        .args(args)
        .env_remove("MORTISE_URL")
        .env_remove("REDISCLI_AUTH")
        .envs(envs.iter().copied())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The words of the first line that begins with `first`.
fn words_of<'a>(out: &'a str, first: &str) -> Vec<&'a str> {
    let line = out
        .lines()
        .find(|line| line.split(' ').next() == Some(first));
    let line = line.unwrap_or_else(|| panic!("no line {first} in\n{out}"));
    line.split_whitespace().collect()
}

/// Two locks with waiters; returns the token of the first.
fn contended(server: &Server) -> i64 {
    let mut a = server.connect();
    let token = int(&cmd!(a, "LOCK.ACQUIRE", "stock:42", "alice", 600_000));
    queue!(a, "box", "LOCK.ACQUIRE", "stock:42", "bob", 1000);
    queue!(a, "box", "LOCK.ACQUIRE", "stock:42", "carol", 1000);
    cmd!(a, "LOCK.RLOCK", "a b\"\n", "eve", 600_000);
    queue!(a, "box", "LOCK.ACQUIRE", "a b\"\n", "fay", 1000);
    token
}

#[test]
fn the_output_in_columns_splits_at_spaces() {
    let server = builder().start();
    let token = contended(&server).to_string();
    let out = once(&["--once", &server.url()], &[]);
    assert!(out.status.success(), "{out:?}");
    let out = text(&out.stdout);
    let addr = server.addr();
    let facts = words_of(&out, "#");
    assert_eq!(facts[1], addr);
    for fact in [
        "locks=2",
        "holders=2",
        "waiters=3",
        "waiters_by_mail=3",
        "total_grants=2",
    ] {
        assert!(facts.contains(&fact), "{fact}: {facts:?}");
    }
    let titles = "LOCK DB SERVER WAITING LONGEST_MS BY MODE HOLDERS OWNER TOKEN HELD_MS LEASE_MS";
    assert_eq!(words_of(&out, "LOCK").join(" "), titles);
    let stock = words_of(&out, "stock:42");
    let (waited, rest) = (
        stock[4].parse::<u64>().unwrap(),
        [&stock[..4], &stock[5..10]].concat(),
    );
    assert!(waited < 600_000);
    let expected = [
        "stock:42", "0", &addr, "2", "mail", "write", "1", "alice", &token,
    ];
    assert_eq!(rest, expected);
    let lease: u64 = stock[11].parse().unwrap();
    assert!((1..=600_000).contains(&lease));
    assert_eq!(
        words_of(&out, r#"a\x20b"\n"#)[5..9],
        ["mail", "read", "1", "eve"]
    );
    assert!(!out.contains('\x1b'));
}

#[test]
fn the_output_as_json_has_the_same_data() {
    let server = builder().start();
    let token = contended(&server);
    let out = once(&["--json", "--filter", "eve", &server.url()], &[]);
    assert!(out.status.success(), "{out:?}");
    let out = text(&out.stdout);
    let addr = server.addr();
    assert!(out.starts_with(&format!(
        r#"{{"servers":[{{"server":"{addr}","answers":true,"locks":2,"#
    )));
    let lock = format!(
        r#""locks":[{{"lock":"a b\"\\n","db":0,"server":"{addr}","waiting":1,"longest_ms":"#
    );
    assert!(out.contains(&lock), "{out}");
    assert!(out.contains(r#","by":"mail","mode":"read","holders":1,"owner":"eve","token":"#));
    assert!(
        !out.contains(&token.to_string()),
        "the filter leaves alice out:\n{out}"
    );
    assert!(out.ends_with("}]}\n"), "{out}");
}

#[test]
fn a_server_that_does_not_answer_is_a_failure_that_still_shows_the_others() {
    let (here, mut gone) = (builder().start(), builder().start());
    contended(&here);
    let urls = [here.url(), gone.url()];
    gone.sigkill();
    let out = once(&["--once", &urls[0], &urls[1]], &[]);
    assert_eq!(out.status.code(), Some(1));
    let out = text(&out.stdout);
    assert!(
        out.contains(&format!("# {} silent\n", gone.addr())),
        "{out}"
    );
    assert!(
        out.contains(&format!(
            "! {}: no answer: nothing listens there\n",
            gone.addr()
        )),
        "{out}"
    );
    assert_eq!(words_of(&out, "stock:42")[3], "2");
}

#[test]
fn the_environment_names_the_server_without_an_argument() {
    let server = builder().config("requirepass", "secret").start();
    contended(&server);
    let url = server.url();
    let refused = once(&["--once"], &[("MORTISE_URL", &url)]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stdout).contains("NOAUTH"), "{refused:?}");
    let envs = [("MORTISE_URL", &*url), ("REDISCLI_AUTH", "secret")];
    let out = once(&["--once"], &envs);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(words_of(&text(&out.stdout), "stock:42")[8], "alice");
}

#[test]
fn a_unix_socket_and_a_user_with_a_password_work() {
    let server = builder().unix_socket().start();
    contended(&server);
    let mut conn = server.connect();
    cmd!(
        conn,
        "ACL SETUSER eyes on >secret ~* +lock.top +lock.info +info +select +cluster|nodes"
    );
    let socket = server.socket();
    let url = format!("unix://{}", socket.display());
    let out = once(
        &["--once", "--user", "eyes", &url],
        &[("REDISCLI_AUTH", "secret")],
    );
    assert!(out.status.success(), "{out:?}");
    let out = text(&out.stdout);
    assert_eq!(words_of(&out, "stock:42")[8], "alice");
}

#[test]
fn the_observer_of_the_page_on_security_sees_locks_of_all_databases_and_nodes() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security.md");
    let page = fs::read_to_string(page).unwrap();
    let line = page
        .lines()
        .find(|line| line.starts_with("ACL SETUSER observer "))
        .unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let look = |server: &Server| {
        let url = server.url();
        let password = [("REDISCLI_AUTH", "observer-password")];
        let out = once(&["--once", "--user", "observer", &url], &password);
        assert!(out.status.success(), "{out:?}");
        text(&out.stdout)
    };
    let server = builder().alone().start();
    let mut conn = server.connect();
    conn.cmd(&words);
    for db in [0, 3] {
        cmd!(conn, "SELECT", db);
        cmd!(conn, "LOCK.ACQUIRE lock:1 owner{db} 600000");
    }
    queue!(conn, "box", "LOCK.ACQUIRE", "lock:1", "bob", 1000);
    let out = look(&server);
    assert_eq!(words_of(&out, "lock:1")[8], "owner3");
    assert!(!out.contains("NOPERM"), "{out}");

    let cluster = Cluster::start(2, builder);
    for node in &cluster.primaries {
        node.connect().cmd(&words);
    }
    let home = cluster.home_of("lock:1");
    let mut conn = cluster.primaries[home].connect();
    cmd!(conn, "LOCK.ACQUIRE", "lock:1", "alice", 600_000);
    queue!(conn, "{x}", "LOCK.ACQUIRE", "lock:1", "bob", 1000);
    let out = look(&cluster.primaries[1 - home]);
    assert_eq!(words_of(&out, "lock:1")[8], "alice");
}

#[test]
fn data_that_a_user_may_not_see_is_shown_as_refused() {
    let server = builder().start();
    contended(&server);
    let mut conn = server.connect();
    cmd!(conn, "ACL SETUSER clerk on >secret ~* +info +cluster|nodes");
    let url = format!("redis://clerk:secret@{}/", server.addr());
    let out = once(&["--once", &url], &[]);
    let out = text(&out.stdout);
    assert!(out.contains("! LOCK.TOP: NOPERM"), "{out}");
    assert!(words_of(&out, "#").contains(&"waiters=3"), "{out}");
    assert!(!out.contains("secret"), "{out}");
}

#[test]
fn a_wrong_command_line_is_an_error_and_gives_no_password_away() {
    for (args, told) in [
        (&["--nonsense"][..], "--nonsense"),
        (&["gopher://me:secret@host/"], "is not an address"),
        (&["--interval", "0"], "between 0.1 and 3600"),
        (&["--sentinel", "mine"], "--sentinel needs the URL"),
        (&["--cert", "x"], "x: "),
    ] {
        let out = once(args, &[]);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        let error = text(&out.stderr);
        assert!(
            error.contains(told) && !error.contains("secret"),
            "{args:?}: {error}"
        );
    }
    // No terminal to draw on.
    let out = once(&["redis://127.0.0.1:1/"], &[]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("try --once"));
}
