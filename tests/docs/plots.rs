//! The plots of the documentation show the figures in their data files. The text of all its pictures can be read on a phone.

use std::process::Command;

use crate::pages;

fn assert_drawn_by(script: &str, picture: &str) {
    let script = pages::root().join(script);
    let drawn = Command::new("python3").arg(script).output().unwrap();
    let said = String::from_utf8_lossy(&drawn.stderr);
    assert!(drawn.status.success(), "{said}");
    let drawn = String::from_utf8(drawn.stdout).unwrap();
    assert_eq!(pages::read(picture), drawn);
}

#[test]
fn the_plot_of_contention_shows_the_figures_of_its_file() {
    assert_drawn_by("benches/contention.py", "docs/contention.svg");
}

#[test]
fn the_plot_of_the_libraries_shows_the_figures_of_the_page() {
    assert_drawn_by("benches/peers/plot.py", "docs/peers.svg");
}

/// The numbers after `name="` in the picture.
fn numbers<'a>(picture: &'a str, name: &'a str) -> impl Iterator<Item = f64> + 'a {
    let after = picture.split(name).skip(1);
    after.map(|rest| rest[2..].split('"').next().unwrap().parse().unwrap())
}

#[test]
fn the_text_of_every_picture_can_be_read_on_a_phone() {
    for name in ["contention", "handoff", "peers"] {
        let picture = pages::read(&format!("docs/{name}.svg"));
        let width = numbers(&picture, " width").next().unwrap();
        let smallest = numbers(&picture, "font-size").reduce(f64::min);
        let smallest = smallest.unwrap_or_else(|| panic!("{name} states no font-size"));
        let on_a_phone = smallest * 360.0 / width;
        assert!(on_a_phone >= 9.5, "{name}: {on_a_phone:.1} pixels");
    }
}
