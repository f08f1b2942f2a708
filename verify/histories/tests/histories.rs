//! A part of `make -C verify histories`, short enough for every test run. Client processes use one server that is killed, frozen, filled and
//! cut off, and the judges find nothing wrong with what the clients believed. The same judges find the faults of other locks.

use std::process::Command;

const PROOF: &str = env!("CARGO_BIN_EXE_mortise-proof");

/// Does some of the runs, and returns their output.
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
fn no_client_believes_wrongly_while_its_server_fails() {
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
fn a_lock_by_set_nx_px_shows_two_inside() {
    // The wall clock steps soon.
    let control = "control: one server, append-only file, SET NX PX";
    let told = run(&["--seed", "3", control]);
    assert!(told.contains("found two inside after"), "{told}");
}

#[test]
fn the_program_prints_its_usage() {
    assert!(run(&["--help"]).contains("mortise-proof [--minutes N"));
}
