//! A test runs every command on docs/install.md: here, or in its own Debian (`make -C packaging deb-test`).

use std::fs;
use std::process::Command;

use crate::own_server::{root, run, said};

/// The tests that run the blocks with these names.
const RUNNERS: [(&str, &[&str]); 4] = [
    (
        "tests/install/debian",
        &["deb", "tools", "source", "sandbox", "load", "archive"],
    ),
    ("tests/install/leaving.rs", &["away"]),
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
    assert!(found >= 9, "only {found} found");
}
