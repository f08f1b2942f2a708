//! The examples run, and do what they show.

use std::path::PathBuf;
use std::process::Command;

use mortise_harness::Server;

/// The output of an example. `cargo test` builds it together with this test; with `--test locks`, run `cargo build --examples` first.
fn output(example: &str, servers: &[Server]) -> String {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().and_then(|deps| deps.parent()).unwrap();
    let path: PathBuf = built.join("examples").join(example);
    let output = Command::new(&path)
        .args(servers.iter().map(Server::url))
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{example}: {text}{errors}");
    text
}

#[test]
fn the_flash_sale_never_oversells() {
    let text = output("flash_sale", &[Server::start()]);
    assert_eq!(text.matches("500 sold").count(), 2, "{text}");
    assert!(text.contains("times as fast"), "{text}");
}

#[test]
fn a_function_runs_under_a_lock() {
    assert!(output("with_lock", &[Server::start()]).contains("60 in sum"));
}

#[test]
fn a_job_that_every_process_starts_runs_once() {
    let text = output("run_once", &[Server::start()]);
    assert_eq!(text.matches(": running").count(), 1, "{text}");
    assert_eq!(text.matches("another one runs it").count(), 4, "{text}");
}

#[test]
fn each_candidate_leads_once() {
    let text = output("leader", &[Server::start()]);
    assert_eq!(text.matches("leads").count(), 3, "{text}");
    assert_eq!(text.matches("resigns").count(), 3, "{text}");
}

#[test]
fn a_cancelled_batch_lets_the_next_one_start() {
    let text = output("rate_limited_batch", &[Server::start()]);
    assert!(
        text.contains("item 1,") && text.contains("cancelled") && text.contains("the next batch"),
        "{text}"
    );
}

#[test]
fn a_write_with_an_old_token_is_refused() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let text = output("redlock", &servers);
    let writes: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("writes"))
        .collect();
    assert!(
        writes[0].ends_with("true") && writes[1].ends_with("false"),
        "{text}"
    );
}
