//! `scripts/circles` finds files that use each other in a circle, and only those.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The script's output for a crate of these files, and whether it succeeded.
fn circles(name: &str, files: &[(&str, &str)]) -> (bool, String) {
    let src = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&src);
    for (file, text) in files {
        let path = src.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/circles");
    let output = Command::new(script).arg(&src).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    let said = said.replace(&format!("{}/", src.display()), "");
    (output.status.success(), said)
}

#[track_caller]
fn assert_none(name: &str, files: &[(&str, &str)]) {
    let (content, said) = circles(name, files);
    assert!(content && said.is_empty(), "{said}");
}

/// Fails unless these arrows, and no others, are named as a circle.
#[track_caller]
fn assert_circle(name: &str, files: &[(&str, &str)], arrows: &[&str]) {
    let (content, said) = circles(name, files);
    assert!(!content, "no circle found");
    let mut found: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("->"))
        .map(|line| line.split("  (").next().unwrap().trim())
        .collect();
    found.sort_unstable();
    assert_eq!(found, arrows, "{said}");
}

const LIB: (&str, &str) = ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;\n");

#[test]
fn files_that_use_only_files_below_them_make_no_circle() {
    let files = [
        LIB,
        ("a.rs", "use crate::b::{B, self};\nuse crate::c::C;\n"),
        ("b.rs", "use super::c;\nfn f() { c::g() }\npub struct B;\n"),
        ("c.rs", "pub struct C;\npub fn g() {}\n"),
    ];
    assert_none("down", &files);
}

#[test]
fn a_circle_of_three_files_is_found_without_the_file_that_only_uses_it() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\nmod c;\nmod user;\n"),
        (
            "a.rs",
            "use std::fmt;\nuse crate::{\n    b::B,\n};\npub struct A;\n",
        ),
        ("b.rs", "pub struct B;\nfn f() { crate::c::g() }\n"),
        ("c.rs", "pub fn g() -> super::a::A { todo() }\n"),
        ("user.rs", "use crate::a::A;\n"),
    ];
    assert_circle(
        "three",
        &files,
        &["a.rs -> b.rs", "b.rs -> c.rs", "c.rs -> a.rs"],
    );
}

#[test]
fn a_re_export_of_a_folder_counts_as_a_use_of_the_file_behind_it() {
    let room = "mod one;\nmod two;\npub(crate) use one::One;\npub(crate) use two::*;\n";
    let files = [
        ("lib.rs", "mod room;\n"),
        ("room/mod.rs", room),
        ("room/one.rs", "use super::Two;\npub struct One;\n"),
        ("room/two.rs", "pub struct Two;\n"),
    ];
    assert_none("room", &files);
    let files = [
        ("lib.rs", "mod room;\n"),
        ("room/mod.rs", room),
        ("room/one.rs", "use crate::room::Two;\npub struct One;\n"),
        (
            "room/two.rs",
            "use crate::room;\nfn f(_: room::One) {}\npub struct Two;\n",
        ),
    ];
    let arrows = ["room/one.rs -> room/two.rs", "room/two.rs -> room/one.rs"];
    assert_circle("rooms", &files, &arrows);
}

#[test]
fn a_mod_file_with_code_can_be_in_a_circle() {
    let files = [
        ("lib.rs", "mod room;\n"),
        (
            "room/mod.rs",
            "mod one;\npub fn f() { one::g() }\npub fn h() {}\n",
        ),
        ("room/one.rs", "pub fn g() { super::h() }\n"),
    ];
    let arrows = ["room/mod.rs -> room/one.rs", "room/one.rs -> room/mod.rs"];
    assert_circle("page", &files, &arrows);
}

#[test]
fn comments_strings_and_unit_tests_do_not_count_as_uses() {
    let files = [
        LIB,
        ("a.rs", "use crate::b::B;\npub struct A;\n"),
        (
            "b.rs",
            "/// See [`crate::a::A`].\npub struct B;\nconst TEXT: &str = \"crate::a::A\";\n\
             #[cfg(test)]\nmod tests {\n    use crate::a::A;\n    use super::*;\n}\n",
        ),
        ("c.rs", "// use crate::c::C;\n"),
    ];
    assert_none("quiet", &files);
}
