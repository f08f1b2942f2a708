//! The tables of `docs/proof.md`: a row for each run, a column for each server.

use std::fs;
use std::io;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/proof.md");

/// Writes a cell of the table whose first heading is `title`. What has no row or column yet gets one.
pub(crate) fn write(title: &str, row: &str, column: &str, cell: &str) -> io::Result<()> {
    let text = fs::read_to_string(PAGE)?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let is_row_of = |line: &String, name: &str| line.starts_with(&format!("| {name} |"));
    let head = lines.iter().position(|line| is_row_of(line, title));
    let head = head.ok_or_else(|| io::Error::other(format!("no table of {title:?}")))?;
    let is_in_table = |line: &&String| line.starts_with('|');
    let end = head + lines[head..].iter().take_while(is_in_table).count();
    let columns = cells(&lines[head]);
    let nth = columns.iter().position(|name| name == column);
    let nth = nth.unwrap_or_else(|| {
        lines[head] += &format!(" {column} |");
        lines[head + 1] += " --: |";
        for line in &mut lines[head + 2..end] {
            line.push_str("  |");
        }
        columns.len()
    });
    let mut rows = head + 2..end;
    let at = rows
        .find(|at| is_row_of(&lines[*at], row))
        .unwrap_or_else(|| {
            let empty = "  |".repeat(cells(&lines[head]).len() - 1);
            lines.insert(end, format!("| {row} |{empty}"));
            end
        });
    let mut found = cells(&lines[at]);
    found[nth] = cell.to_owned();
    lines[at] = format!("| {} |", found.join(" | "));
    fs::write(PAGE, lines.join("\n") + "\n")
}

/// The cells of a line of a table.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim_start_matches('|').trim_end();
    let line = line.strip_suffix('|').unwrap_or(line);
    line.split('|').map(|cell| cell.trim().to_owned()).collect()
}
