//! The client needs no more permissions than `docs/security.md` gives the user `locker`.

use std::fs;
use std::path::Path;

use mortise_client::{Client, Error, Mode};
use mortise_harness::{Server, array, cmd, text};

use crate::support::{PATIENCE, assert_code, await_waiters, client, eventually, ms, refuse, start};

#[tokio::test]
async fn the_user_locker_of_the_guide_may_run_every_command_that_the_client_needs() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security.md");
    let page = fs::read_to_string(page).unwrap();
    let mut lines = page.lines();
    let line = lines
        .find(|line| line.starts_with("ACL SETUSER locker "))
        .unwrap();
    let (server, root) = start().await;
    server.connect().cmd(&line.split(' ').collect::<Vec<_>>());
    let url = format!("redis://locker:locker-password@{}/", server.addr());
    let locker = Client::connect(&*url).await.unwrap();

    let lock = locker.lock("lock:1").lease(ms(900));
    let guard = lock.acquire().await.unwrap();
    let waiting = tokio::spawn(locker.lock("lock:1").acquire());
    await_waiters(&root, "lock:1", 1).await;
    guard.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert_eq!(next.mode(), Mode::Write);
    next.release().await.unwrap();
    let reader = locker.lock("lock:1").read().await.unwrap();
    reader.release().await.unwrap();
    // The client releases a dropped guard in the background.
    drop(locker.lock("lock:1").acquire().await.unwrap());
    locker.close(ms(20_000)).await;

    let locker = Client::connect(&*url).await.unwrap();
    let refused = locker.lock("other").acquire().await;
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    let log = cmd!(server.connect(), "ACL", "LOG");
    let denied: Vec<String> = array(&log)
        .iter()
        .map(|entry| {
            let fields = array(entry);
            let mut pairs = fields.chunks(2);
            let object = pairs.find(|pair| text(&pair[0]) == "object").unwrap();
            text(&object[1])
        })
        .collect();
    // The other key, and commands that the client can do without: LOCK.INFO, and CLIENT SETINFO where the server has it.
    assert!(denied.contains(&"other".to_owned()), "{log:?}");
    let goes_on = |it: &String| ["other", "LOCK.INFO", "client|setinfo"].contains(&&**it);
    assert!(denied.iter().all(goes_on), "{log:?}");
}

#[tokio::test]
async fn a_request_whose_letter_may_not_be_collected_fails_and_leaves_the_queue() {
    // The server itself would end the request only after a minute.
    let server = Server::builder()
        .module_arg("mail-timeout", "60000")
        .start();
    let (root, mine) = (client(&server).await, client(&server).await);
    let guard = root.lock("k").acquire().await.unwrap();
    let reader = mine.lock("other").read().await.unwrap();
    let _other = root.lock("other").read().await.unwrap();
    refuse(&server, "lock.mail");
    let refused = mine.lock("k").acquire().await.unwrap_err();
    assert_code(&refused, "NOPERM");
    let refused = reader.upgrade().await.unwrap_err();
    assert!(refused.to_string().contains("NOPERM"), "{refused:?}");
    assert!(
        !reader.is_valid(),
        "nobody knows whether it is granted later"
    );
    await_waiters(&root, "k", 0).await;
    await_waiters(&root, "other", 0).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_grant_to_a_waiter_that_was_given_up_while_the_server_refused_that_is_given_back() {
    let (server, client) = start().await;
    let lock = client.lock("k").lease(ms(3_600_000));
    let guard = lock.clone().acquire().await.unwrap();
    let given_up = tokio::spawn(lock.clone().acquire());
    await_waiters(&client, "k", 1).await;
    let next = tokio::spawn(lock.acquire());
    await_waiters(&client, "k", 2).await;
    refuse(&server, "lock.leave");
    given_up.abort();
    eventually("it may not leave", async || server.errors("NOPERM") > 0).await;
    cmd!(server.connect(), "ACL", "SETUSER", "default", "+lock.leave");
    guard.release().await.unwrap();
    let next = tokio::time::timeout(PATIENCE, next).await;
    let _next = next.unwrap().unwrap().unwrap();
}
