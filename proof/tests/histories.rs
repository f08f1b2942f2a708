//! A part of `make proof`, short enough for every test run: clients in processes of their own use one server that is killed,
//! frozen, filled and cut off, and nothing is wrong with what they believed. The same judges find what is wrong with other locks.

use std::process::Command;

const PROOF: &str = env!("CARGO_BIN_EXE_mortise-proof");

/// Runs some of the runs, and returns their output.
#[track_caller]
fn run(args: &[&str]) -> String {
    let out = Command::new(PROOF)
        .args(["--languages", "none"])
        .args(args)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&out.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{args:?}\n{told}\n{wrong}");
    told
}

#[test]
fn nothing_is_wrong_with_what_clients_believed_while_their_server_failed() {
    let told = run(&[
        "--seconds",
        "6",
        "--seed",
        "27",
        "one server, append-only file",
    ]);
    assert!(told.contains("ok: one server, append-only file"), "{told}");
}

#[test]
fn two_are_found_inside_of_a_lock_by_set_nx_px() {
    // The wall clock steps soon.
    let control = "control: one server, append-only file, SET NX PX";
    let told = run(&["--seed", "3", control]);
    assert!(told.contains("found two inside after"), "{told}");
}

#[test]
fn it_says_how_to_call_it() {
    assert!(run(&["--help"]).contains("mortise-proof [--minutes N"));
}
