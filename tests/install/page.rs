//! A test runs every command on docs/install.md: here, or in its own Debian (`make deb-test`).

use std::fs;
use std::process::Command;

use crate::own_server::{root, run, said};

/// The tests that run the blocks with these names.
const RUNNERS: [(&str, &[&str]); 3] = [
    (
        "tests/install/debian",
        &[
            "deb",
            "tools",
            "needed",
            "away",
            "source",
            "source-tools",
            "sandbox",
            "enable",
            "archive",
        ],
    ),
    (
        "tests/install/kubernetes.rs",
        &["kubernetes", "kubernetes-upgrade"],
    ),
    (
        "tests/install/upgrade.rs",
        &["upgrade-replica", "upgrade-failover", "upgrade-roles"],
    ),
];

/// The commands below a mark of docs/install.md.
pub(crate) fn block(name: &str) -> String {
    let mut script = Command::new(root().join("scripts/page-block"));
    script.current_dir(root()).args(["docs/install.md", name]);
    let (content, said) = said(&run(&mut script));
    assert!(content, "{said}");
    said
}

#[test]
fn every_command_of_the_page_on_installing_is_run_by_a_test() {
    let page = fs::read_to_string(root().join("docs/install.md")).unwrap();
    let blocks = page.matches("```sh\n").count();
    let all_blocks = page.matches("```").count() / 2;
    assert_eq!(blocks, all_blocks, "a block that is no sh");
    let mut found = 0;
    for part in page.split("```sh\n").take(blocks) {
        let mark = part.trim_end().lines().last().unwrap();
        let name = mark
            .strip_prefix("<!-- run: ")
            .and_then(|rest| rest.strip_suffix(" -->"));
        let name = name.unwrap_or_else(|| panic!("a block without a mark, below: {mark}"));
        let runner = RUNNERS.iter().find(|(_, names)| names.contains(&name));
        let (runner, _) = runner.unwrap_or_else(|| panic!("nobody runs the block {name}"));
        let text = fs::read_to_string(root().join(runner)).unwrap();
        assert!(text.contains(name), "{runner} does not run {name}");
        assert!(!block(name).is_empty());
        found += 1;
    }
    assert!(found >= 10, "only {found} found");
}

#[test]
fn every_make_target_on_the_page_exists() {
    let help = said(&run(Command::new("make").current_dir(root()).arg("help"))).1;
    for target in [
        "install",
        "install-tools",
        "uninstall",
        "tools",
        "deb",
        "deb-test",
        "release",
    ] {
        assert!(help.contains(&format!("make {target} ")), "{help}");
    }
}
