//! The command that CONTRIBUTING.md adds as an example builds and passes its test.
//!
//! This builds the module, so it runs only with `MORTISE_LONG=1`.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::pages;

/// The folders in which the workspace has its members.
fn members() -> BTreeSet<String> {
    let manifest = pages::read("Cargo.toml");
    let members = manifest.split("members = [").nth(1).unwrap();
    let members = members.split(']').next().unwrap();
    let paths = members.split('"').skip(1).step_by(2);
    let folders = paths.map(|path| path.split('/').next().unwrap().to_owned());
    folders.filter(|folder| folder != "tests").collect()
}

/// A copy of what cargo needs, to which the command is added.
struct Copy(PathBuf);

impl Copy {
    fn make() -> Copy {
        let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("worked");
        let _ = fs::remove_dir_all(&copy);
        fs::create_dir_all(&copy).unwrap();
        let mut parts = members();
        parts.extend(["Cargo.toml", "Cargo.lock", "src", "tests"].map(String::from));
        let parts = parts.iter().map(|part| pages::root().join(part));
        let copied = Command::new("cp").arg("-r").args(parts).arg(&copy).status();
        assert!(copied.unwrap().success());
        Copy(copy)
    }

    fn add(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap();
    }

    /// Inserts `added` after `line`, or at the end if `line` is empty.
    fn insert(&self, file: &str, line: &str, added: &str) {
        let text = fs::read_to_string(self.0.join(file)).unwrap();
        assert!(text.contains(line), "{file} has no {line}");
        let inserted = match line {
            "" => format!("{text}\n{added}"),
            _ => text.replacen(line, &format!("{line}\n{added}"), 1),
        };
        self.add(file, &inserted);
    }

    fn cargo(&self, arguments: &[&str]) {
        let ran = Command::new("cargo")
            .args(arguments)
            .current_dir(&self.0)
            .env("CARGO_TARGET_DIR", self.0.join("target"))
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("MORTISE_MODULE", self.0.join("target/debug/libmortise.so"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr) + String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{said}");
    }
}

#[test]
fn the_command_that_contributing_adds_builds_and_passes_its_test() {
    if env::var_os("MORTISE_LONG").is_none() {
        return;
    }
    let blocks = pages::blocks("CONTRIBUTING.md");
    let code: Vec<_> = blocks
        .into_iter()
        .filter(|block| block.language == "rust")
        .map(|block| block.text)
        .collect();
    let [command, registered, docs, test] = &code[..] else {
        panic!("four pieces of code, not {}", code.len())
    };
    let copy = Copy::make();
    copy.add("src/command/ttl.rs", command);
    copy.insert("src/command/mod.rs", "mod top;", "mod ttl;");
    copy.insert(
        "src/command/mod.rs",
        "pub(crate) use top::Top;",
        "pub(crate) use ttl::Ttl;",
    );
    copy.insert("src/lib.rs", "    commands: &[", registered);
    copy.insert("src/command/docs.rs", "", docs);
    copy.add("tests/commands/ttl.rs", test);
    copy.insert("tests/commands/main.rs", "mod release;", "mod ttl;");
    copy.cargo(&["build", "--package", "mortise"]);
    copy.cargo(&[
        "test",
        "--package",
        "mortise",
        "--test",
        "commands",
        "ttl::",
    ]);
    fs::remove_dir_all(&copy.0).unwrap();
}
