//! Leaving the module, by the commands of docs/install.md.

use std::process::Command;

use mortise_harness::{Conn, Server, cmd, text};

use crate::own_server::{run, said};
use crate::page::block;

/// Writes keys of each kind, some with a time to live, and a name with spaces.
const FILL: &str = "
for n = 1, 3000 do redis.call('SET', 'key:' .. n, string.rep(n .. ';', 200)) end
redis.call('RPUSH', 'list', 'a', '', 'b\\r\\n*1\\r\\n')
redis.call('HSET', 'a name with spaces', 'f', 'v')
redis.call('ZADD', 'sorted', 1, 'one')
redis.call('SET', 'mortal', 'x', 'EX', 100000)";

/// Returns every key with a checksum of its value, and whether it has a time to live.
const CONTENTS: &str = "
local all = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
    all[#all + 1] = key .. redis.sha1hex(redis.call('DUMP', key)) .. (redis.call('TTL', key) > 0 and '!' or '')
end
table.sort(all)
return table.concat(all, ' ')";

fn contents(conn: &mut Conn) -> String {
    text(&cmd!(conn, "EVAL", CONTENTS, 0))
}

/// Runs the page's commands at these two servers.
fn follow(old: &Server, new: &Server) -> (bool, String) {
    let commands = block("away")
        .replace("redis-cli -p 6380", &format!("redis-cli -p {}", new.port()))
        .replace(
            "redis-cli INFO",
            &format!("redis-cli -p {} INFO", old.port()),
        )
        .replace(
            "redis-cli --scan",
            &format!("redis-cli -p {} --scan", old.port()),
        )
        .replace(
            "redis-cli MIGRATE",
            &format!("redis-cli -p {} MIGRATE", old.port()),
        )
        .replace(" 6380 ", &format!(" {} ", new.port()));
    let mut shell = Command::new("bash");
    said(&run(shell.args(["-e", "-o", "pipefail", "-c", &commands])))
}

#[test]
fn the_keys_of_a_server_without_locks_move_to_one_without_the_module() {
    let old = Server::builder().alone().start();
    let mut new = Server::builder().without_module().start();
    let mut conn = old.connect();
    cmd!(conn, "EVAL", FILL, 0);
    cmd!(conn, "LOCK.ACQUIRE", "held", "a", 600_000);
    let (done, said) = follow(&old, &new);
    assert!(!done, "a lock is held: {said}");
    cmd!(conn, "DEL", "held");
    let before = contents(&mut conn);
    let (done, said) = follow(&old, &new);
    assert!(done, "{said}");
    assert_eq!(contents(&mut new.connect()), before);
    new.restart(mortise_harness::Shutdown::AsConfigured);
    assert_eq!(contents(&mut new.connect()), before);
}
