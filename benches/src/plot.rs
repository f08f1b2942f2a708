//! Figures for the plots of the documentation, which `benches/contention.py` writes and draws.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// The result of one way to wait in one crowd.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) clients: usize,
    pub(crate) rival: String,
    pub(crate) ours: bool,
    /// Named as in the file.
    pub(crate) figures: Vec<(&'static str, f64)>,
}

/// Writes `docs/contention.json` and the picture of it.
pub(crate) fn write(head: &[String], rows: &[Row]) -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut drawing = Command::new("python3")
        .arg(root.join("contention.py"))
        .arg("--write")
        .stdin(Stdio::piped())
        .spawn()?;
    let mut figures = drawing.stdin.take().expect("a pipe");
    figures.write_all(json(head, rows).as_bytes())?;
    drop(figures);
    match drawing.wait()?.success() {
        true => Ok(()),
        false => Err(io::Error::other("the picture was not drawn")),
    }
}

fn json(head: &[String], rows: &[Row]) -> String {
    let rows: Vec<String> = rows.iter().map(row).collect();
    // A string's `Debug` output is valid JSON if nothing in it has to be escaped.
    format!("{{\"head\": {head:?}, \"rows\": [{}]}}", rows.join(", "))
}

fn row(row: &Row) -> String {
    let (clients, rival, ours) = (row.clients, &row.rival, row.ours);
    let mut text = format!("{{\"clients\": {clients}, \"rival\": {rival:?}, \"ours\": {ours}");
    for (name, figure) in &row.figures {
        write!(text, ", {name:?}: {figure:.3}").expect("memory");
    }
    text.push('}');
    text
}
