//! Which locks the server frees on another thread.

use mortise_harness::{Server, cmd, int};

/// Handing a single lock to another thread costs more than all the rest of its release.
#[test]
fn a_released_lock_is_freed_on_the_spot_even_where_the_server_frees_lazily() {
    let server = Server::builder()
        .config("lazyfree-lazy-server-del", "yes")
        .start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "owner", 10_000);
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "key", "owner")), 0);
    assert_eq!(server.info("memory")["lazyfreed_objects"], "0");
}
