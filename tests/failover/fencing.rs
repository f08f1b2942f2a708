//! Fencing: a store that refuses old tokens stays correct even where the lock cannot. The statements and the script are
//! the guide's own.

use std::process::Command;

use mortise_harness::{Conn, Link, Server, cmd, int, replicated_over_link, text, try_cmd};
use tempfile::TempDir;

/// A primary that grants, and a replica that is promoted without a grace and without the grant.
struct Forgetful {
    old: Server,
    new: Server,
    link: Link,
}

impl Forgetful {
    fn start() -> Forgetful {
        let (old, new, link) = replicated_over_link(Server::builder);
        Forgetful { old, new, link }
    }

    /// The token of a, which believes for a minute.
    fn grant_to_a(&self) -> i64 {
        self.link.cut();
        acquire(&self.old, "a")
    }

    /// The token of b, granted while a still believes.
    fn fail_over_and_grant_to_b(&mut self) -> i64 {
        self.old.sigkill();
        cmd!(self.new.connect(), "REPLICAOF", "NO", "ONE");
        acquire(&self.new, "b")
    }
}

fn acquire(server: &Server, owner: &str) -> i64 {
    let mut conn = server.connect();
    let token = cmd!(conn, "LOCK.ACQUIRE", "lock:account:7", owner, 60_000);
    int(&token)
}

/// The guide's blocks in `language`.
fn blocks(language: &str) -> Vec<&'static str> {
    let guide = include_str!("../../docs/guarantees.md");
    let opening = format!("```{language}\n");
    let blocks = guide.split(opening.as_str()).skip(1);
    blocks
        .map(|rest| rest.split_once("```").expect("its end").0)
        .collect()
}

fn write_to_redis(store: &mut Conn, token: i64, value: &str) -> Result<String, String> {
    let [script] = blocks("lua")[..] else {
        panic!("one script in the guide")
    };
    let reply = try_cmd!(store, "EVAL", script, 1, "account:7", token, value);
    reply.map(|reply| text(&reply))
}

#[test]
fn a_store_in_redis_refuses_the_old_token_after_a_failover_without_a_grace() {
    let mut locks = Forgetful::start();
    let store_server = Server::builder().without_module().start();
    let mut store = store_server.connect();
    let first = locks.grant_to_a();
    assert_eq!(write_to_redis(&mut store, first, "of a").unwrap(), "OK");
    assert_eq!(write_to_redis(&mut store, first, "again").unwrap(), "OK");
    let second = locks.fail_over_and_grant_to_b();
    assert_eq!(write_to_redis(&mut store, second, "of b").unwrap(), "OK");

    // Both believe that they hold. The store accepts only the newer token.
    let error = write_to_redis(&mut store, first, "too late").unwrap_err();
    assert_eq!(error, format!("STALE token {first}, already saw {second}"));
    assert_eq!(text(&cmd!(store, "HGET", "account:7", "value")), "of b");
}

/// Runs one statement with Python's SQLite, and prints the selected number, or how many rows it has written.
const SQLITE: &str = "
import sqlite3, sys
path, statement, token, balance = sys.argv[1:]
with sqlite3.connect(path) as store:
    done = store.execute(statement, {'id': 7, 'token': int(token), 'balance': int(balance)})
    print(done.fetchone()[0] if done.description else done.rowcount)
";

/// A database.
struct Table(TempDir);

impl Table {
    /// The guide's table and its two writes: to a row that exists, and to one that may not.
    fn new() -> (Table, [&'static str; 2]) {
        let [schema, update, upsert] = blocks("sql")[..] else {
            panic!("a table and two statements in the guide")
        };
        let table = Table(tempfile::tempdir().unwrap());
        table.write(schema, 0, 0);
        (table, [update, upsert])
    }

    /// How many rows it has written, or the selected number.
    fn write(&self, statement: &str, token: i64, balance: i64) -> i64 {
        let database = self.0.path().join("accounts");
        let mut python = Command::new("python3");
        let python = python.args(["-c", SQLITE]).arg(database).arg(statement);
        let done = python
            .arg(token.to_string())
            .arg(balance.to_string())
            .output();
        let done = done.unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        let number = said.trim().parse();
        number.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&done.stderr)))
    }

    fn balance(&self) -> i64 {
        self.write("SELECT balance FROM account WHERE id = 7", 0, 0)
    }
}

#[test]
fn a_table_in_sql_refuses_the_old_token_after_a_failover_without_a_grace() {
    for n in [0, 1] {
        let mut locks = Forgetful::start();
        let (table, statements) = Table::new();
        let statement = statements[n];
        if n == 0 {
            table.write("INSERT INTO account (id, balance) VALUES (7, 0)", 0, 0);
        }
        let first = locks.grant_to_a();
        assert_eq!(table.write(statement, first, 10), 1);
        assert_eq!(table.write(statement, first, 20), 1, "again");
        let second = locks.fail_over_and_grant_to_b();
        assert_eq!(table.write(statement, second, 30), 1);
        assert_eq!(table.write(statement, first, 40), 0, "too late");
        assert_eq!(table.balance(), 30);
    }
}
