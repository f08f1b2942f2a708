//! The plots of the documentation show the figures that lie beside them.

use std::process::Command;

use crate::pages;

#[test]
fn the_plot_of_contention_is_drawn_from_the_figures_beside_it() {
    let script = pages::root().join("benches/contention.py");
    let drawn = Command::new("python3").arg(script).output().unwrap();
    let said = String::from_utf8_lossy(&drawn.stderr);
    assert!(drawn.status.success(), "{said}");
    let drawn = String::from_utf8(drawn.stdout).unwrap();
    assert_eq!(pages::read("docs/contention.svg"), drawn);
}
