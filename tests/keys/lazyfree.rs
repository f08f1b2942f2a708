//! Whether the server frees locks on another thread.

use mortise_harness::{Server, cmd, int};

/// Handing a single lock to another thread costs more than the rest of its release.
#[test]
fn a_released_lock_is_freed_at_once_even_with_lazy_freeing() {
    let (server, mut conn) = Server::configured("lazyfree-lazy-server-del yes");
    cmd!(conn, "LOCK.ACQUIRE key owner 10000");
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE key owner")), 0);
    assert_eq!(server.info("memory")["lazyfreed_objects"], "0");
}
