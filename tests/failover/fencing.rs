//! Fencing: a store that refuses old tokens keeps right even where the lock cannot. Statements and script are the
//! guide's own.

use mortise_harness::{Conn, Link, Server, cmd, int, text, try_cmd, wait_for_sync_over};
use rusqlite::{Connection, named_params};

/// A primary that grants, and a replica that never hears of it and is promoted, without a grace.
struct Forgetful {
    old: Server,
    new: Server,
    link: Link,
}

impl Forgetful {
    fn start() -> Forgetful {
        let old = Server::start();
        let link = Link::to(&old);
        let new = Server::builder().replica_over(&link).start();
        wait_for_sync_over(&link, &old, &new);
        Forgetful { old, new, link }
    }

    /// The token of a, who believes for a minute.
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
fn a_store_in_redis_refuses_a_holder_that_a_failover_without_a_grace_has_forgotten() {
    let mut locks = Forgetful::start();
    let store_server = Server::builder().without_module().start();
    let mut store = store_server.connect();
    let first = locks.grant_to_a();
    assert_eq!(write_to_redis(&mut store, first, "of a").unwrap(), "OK");
    assert_eq!(write_to_redis(&mut store, first, "again").unwrap(), "OK");
    let second = locks.fail_over_and_grant_to_b();
    assert_eq!(write_to_redis(&mut store, second, "of b").unwrap(), "OK");

    // Both believe to hold. The store knows better.
    let error = write_to_redis(&mut store, first, "too late").unwrap_err();
    assert_eq!(error, format!("STALE token {first}, already saw {second}"));
    assert_eq!(text(&cmd!(store, "HGET", "account:7", "value")), "of b");
}

/// The guide's table, and what it writes into it: an update of a row that is there, and of one that may not be.
fn table() -> (Connection, [&'static str; 2]) {
    let [schema, update, upsert] = blocks("sql")[..] else {
        panic!("a table and two statements in the guide")
    };
    let store = Connection::open_in_memory().unwrap();
    store.execute_batch(schema).unwrap();
    (store, [update, upsert])
}

/// How many rows are written.
fn write_to_table(store: &Connection, statement: &str, token: i64, balance: i64) -> usize {
    let values = named_params! {":id": 7, ":token": token, ":balance": balance};
    store.execute(statement, values).unwrap()
}

fn balance(store: &Connection) -> i64 {
    let query = "SELECT balance FROM account WHERE id = 7";
    store.query_row(query, [], |row| row.get(0)).unwrap()
}

#[test]
fn a_table_in_sql_refuses_a_holder_that_a_failover_without_a_grace_has_forgotten() {
    for n in [0, 1] {
        let mut locks = Forgetful::start();
        let (store, statements) = table();
        let statement = statements[n];
        if n == 0 {
            let row = "INSERT INTO account (id, balance) VALUES (7, 0)";
            store.execute(row, []).unwrap();
        }
        let first = locks.grant_to_a();
        assert_eq!(write_to_table(&store, statement, first, 10), 1);
        assert_eq!(write_to_table(&store, statement, first, 20), 1, "again");
        let second = locks.fail_over_and_grant_to_b();
        assert_eq!(write_to_table(&store, statement, second, 30), 1);
        assert_eq!(write_to_table(&store, statement, first, 40), 0, "too late");
        assert_eq!(balance(&store), 30);
    }
}
