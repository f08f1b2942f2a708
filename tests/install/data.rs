//! `mortise-module needed` and `forget`, and `disable` on data that was saved with the module.

use std::fs;

use mortise_harness::eventually;

use crate::own_server::{OwnServer, Prefix};

fn with_module(lines: &str) -> (Prefix, OwnServer) {
    let (prefix, mut server) = (Prefix::new(), OwnServer::new(lines));
    let (content, said) = prefix.tool(&["enable", &server.conf()]);
    assert!(content, "{said}");
    server.start();
    (prefix, server)
}

#[track_caller]
fn assert_refused(prefix: &Prefix, words: &[&str], why: &str) {
    let (content, said) = prefix.tool(words);
    assert!(!content && said.contains(why), "{said}");
}

/// Keys of each kind, some with a TTL, in two databases, and more bytes than one read of a file takes.
fn fill(server: &OwnServer) {
    server.cli(&["EVAL", FILL, "0"]);
}

const FILL: &str = "
for n = 1, 3000 do redis.call('SET', 'key:' .. n, string.rep(n .. ';', 200)) end
redis.call('RPUSH', 'list', 'a', '', 'b\\r\\n*1\\r\\n')
redis.call('HSET', 'hash', 'f', 'v')
redis.call('ZADD', 'sorted', 1, 'one')
redis.call('SET', 'mortal', 'x', 'EX', 100000)
redis.call('SELECT', 1)
redis.call('SET', 'other', 'database')";

/// Checks that exactly the data of `fill` is there.
fn contents(server: &OwnServer) -> String {
    let one = server.cli(&["EVAL", CONTENTS, "0"]);
    let other = server.cli(&["-n", "1", "GET", "other"]);
    format!("{one}\n{other}")
}

const CONTENTS: &str = "
local all = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
    all[#all + 1] = key .. redis.sha1hex(redis.call('DUMP', key)) .. (redis.call('TTL', key) > 0 and '!' or '')
end
table.sort(all)
return table.concat(all, ' ')";

#[track_caller]
fn leave(prefix: &Prefix, server: &mut OwnServer) {
    let before = contents(server);
    server.stop();
    for call in ["forget", "disable"] {
        let (content, said) = prefix.tool(&[call, &server.conf()]);
        assert!(content, "{said}");
    }
    server.start();
    assert_eq!(contents(server), before);
    let error = server.cli(&["LOCK.ACQUIRE", "key", "a", "1000"]);
    assert!(error.contains("unknown command"), "{error}");
    server.restart();
    assert_eq!(contents(server), before);
}

#[test]
fn a_snapshot_loads_without_the_module_after_forget() {
    let (prefix, mut server) = with_module("");
    fill(&server);
    server.cli(&["LOCK.ACQUIRE", "lock", "a", "1000"]);
    server.cli(&["LOCK.RELEASE", "lock", "a"]);
    assert_refused(&prefix, &["disable", &server.conf()], "still loads");
    leave(&prefix, &mut server);
    let kept = fs::read(server.file("with-mortise/dump.rdb")).unwrap();
    assert!(kept.starts_with(b"REDIS") || kept.starts_with(b"VALKEY"));
}

#[test]
fn a_second_forget_keeps_the_files_of_the_first() {
    let (prefix, mut server) = with_module("");
    for kept in ["with-mortise", "with-mortise-2"] {
        server.cli(&["LOCK.ACQUIRE", "lock", kept, "1000"]);
        server.cli(&["LOCK.RELEASE", "lock", kept]);
        leave(&prefix, &mut server);
        assert!(server.file(kept).join("dump.rdb").exists());
        assert!(prefix.tool(&["enable", &server.conf()]).0);
        server.restart();
    }
    server.stop();
    fs::remove_file(server.file("dump.rdb")).unwrap();
    let (content, said) = prefix.tool(&["forget", &server.conf()]);
    assert!(content && said.contains("needs the module"), "{said}");
}

#[test]
fn an_append_only_file_loads_without_the_module_after_forget() {
    for preamble in ["yes", "no"] {
        let (prefix, mut server) = with_module(&format!(
            "appendonly yes\naof-use-rdb-preamble {preamble}\n"
        ));
        server.cli(&["LOCK.ACQUIRE", "lock", "a", "1000"]);
        fill(&server);
        server.cli(&["LOCK.RELEASE", "lock", "a"]);
        server.cli(&["BGREWRITEAOF"]);
        eventually("it is rewritten", || {
            let state = server.cli(&["INFO", "persistence"]);
            state.contains("aof_rewrite_in_progress:0") && state.contains("scheduled:0")
        });
        // Even in the part of the file to which the server appends.
        server.cli(&["LOCK.ACQUIRE", "late", "a", "1000"]);
        server.cli(&["LOCK.RELEASE", "late", "a"]);
        leave(&prefix, &mut server);
    }
}

#[test]
fn forget_does_not_change_a_file_with_a_lock() {
    let (prefix, mut server) = with_module("");
    server.cli(&["LOCK.ACQUIRE", "lock", "a", "600000"]);
    server.stop();
    let before = fs::read(server.file("dump.rdb")).unwrap();
    assert_refused(&prefix, &["needed", &server.conf()], "dump.rdb");
    assert_refused(&prefix, &["forget", &server.conf()], "holds locks");
    assert_refused(&prefix, &["disable", &server.conf()], "still loads");
    assert_eq!(fs::read(server.file("dump.rdb")).unwrap(), before);
    assert!(!server.file("with-mortise").exists());
    assert!(!server.file("dump.rdb.without-mortise").exists());
    server.start();
    assert!(server.cli(&["LOCK.INFO", "lock"]).contains("holders"));
}

#[test]
fn users_that_may_lock_keep_the_module() {
    for file in ["redis.conf", "users.acl"] {
        let (prefix, mut server) = (Prefix::new(), OwnServer::new(""));
        if file == "users.acl" {
            fs::write(server.file(file), "").unwrap();
            server.append("aclfile users.acl\n");
        }
        let (content, said) = prefix.tool(&["enable", &server.conf()]);
        assert!(content, "{said}");
        server.start();
        let save: &[&str] = match file {
            "redis.conf" => &["CONFIG", "REWRITE"],
            _ => &["ACL", "SAVE"],
        };
        for (user, rule) in [("locker", "+lock.acquire"), ("reader", "+get")] {
            server.cli(&["ACL", "SETUSER", user, "on", "nopass", "~*", rule]);
        }
        assert_eq!(server.cli(save), "OK");
        server.stop();
        let (_, said) = prefix.tool(&["forget", &server.conf()]);
        assert_refused(&prefix, &["needed", &server.conf()], "the user locker of");
        let (content, said_of_users) = prefix.tool(&["disable", &server.conf()]);
        assert!(
            !content && !said_of_users.contains("reader"),
            "{said}{said_of_users}"
        );
        server.start();
        assert_eq!(server.cli(&["ACL", "DELUSER", "locker"]), "1");
        assert_eq!(server.cli(save), "OK");
        leave(&prefix, &mut server);
        assert_eq!(server.cli(&["ACL", "USERS"]), "default\nreader");
    }
}

#[test]
fn needed_asks_a_running_server_what_it_would_save() {
    let (prefix, server) = with_module("");
    server.cli(&["LOCK.ACQUIRE", "lock", "a", "600000"]);
    assert_refused(&prefix, &["needed", &server.conf()], "holds 1 locks");
    assert_refused(&prefix, &["disable", &server.conf()], "still loads");
    assert_refused(&prefix, &["forget", &server.conf()], "stop it first");
}

#[test]
fn needed_assumes_that_an_unreachable_server_needs_the_module() {
    let (prefix, server) = with_module("");
    server.cli(&["CONFIG", "SET", "requirepass", "secret"]);
    assert_refused(&prefix, &["needed", &server.conf()], "does not say");
}

#[test]
fn a_password_in_the_configuration_is_used() {
    let (prefix, server) = with_module("requirepass secret\n");
    server.cli(&["-a", "secret", "LOCK.ACQUIRE", "lock", "a", "600000"]);
    assert_refused(&prefix, &["needed", &server.conf()], "holds 1 locks");
}

#[test]
fn after_a_forced_disable_the_server_starts_again_once_the_module_is_back() {
    let (prefix, mut server) = with_module("");
    let token = server.cli(&["LOCK.ACQUIRE", "lock", "a", "600000"]);
    server.stop();
    assert!(prefix.tool(&["disable", "--force", &server.conf()]).0);
    assert!(!server.try_start());
    assert!(server.log().contains("mort-lock"), "{}", server.log());
    assert!(prefix.tool(&["enable", &server.conf()]).0);
    server.start();
    assert_eq!(server.cli(&["LOCK.RENEW", "lock", "a", "1000"]), token);
}
