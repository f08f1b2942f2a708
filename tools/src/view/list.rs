//! The locks with waiters.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Widget};

use super::columns::{self, Cells, Column, Kind};
use super::theme::Theme;
use crate::model::{Row, State};
use crate::text;

const COLUMNS: [Column; 11] = [
    Column::new("LOCK", 16, 0, Kind::Name),
    Column::new("DB", 2, 10, Kind::Number),
    Column::new("SERVER", 15, 5, Kind::Name),
    Column::new("WAITING", 7, 1, Kind::Number),
    Column::new("LONGEST", 8, 3, Kind::Number),
    Column::new("BY", 7, 7, Kind::Word),
    Column::new("MODE", 5, 4, Kind::Word),
    Column::new("HOLDERS", 7, 9, Kind::Number),
    Column::new("HELD BY", 14, 2, Kind::Name),
    Column::new("FOR", 8, 8, Kind::Number),
    Column::new("LEASE", 8, 6, Kind::Number),
];

pub(super) fn draw(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let rows = state.rows();
    if rows.is_empty() {
        return Paragraph::new(Line::styled(nothing(state), theme.label())).render(area, buffer);
    }
    // One server needs no column to say which, and one database neither.
    let (one_node, one_db) = (
        state.nodes.len() == 1,
        rows.iter().all(|row| row.wanted.db == 0),
    );
    let shown: Vec<usize> = (0..COLUMNS.len())
        .filter(|at| match COLUMNS[*at].title {
            "SERVER" => !one_node,
            "DB" => !one_db,
            _ => true,
        })
        .collect();
    let lines: Vec<Cells> = rows.iter().map(|row| line(row, &shown, theme)).collect();
    let columns: Vec<Column> = shown.iter().map(|at| COLUMNS[*at]).collect();
    columns::draw(
        &columns,
        &lines,
        state.chosen_row(&rows),
        theme,
        area,
        buffer,
    );
}

fn nothing(state: &State) -> String {
    if !state.filter.is_empty() {
        format!(
            "No lock with waiters, and no holder of one, has {:?} in its name.",
            state.filter
        )
    } else if state.nodes.values().any(|node| node.is_known()) {
        "Nobody waits for a lock.".to_owned()
    } else {
        "Connecting…".to_owned()
    }
}

fn line(row: &Row<'_>, shown: &[usize], theme: Theme) -> Cells {
    let wanted = row.wanted;
    let hold = wanted
        .detail
        .as_ref()
        .and_then(|detail| detail.holds.first());
    let owner = hold.map_or_else(String::new, |hold| text::escaped(&hold.owner));
    let held_by = match wanted.holders {
        0 => "nobody".to_owned(),
        1 => owner,
        more => format!("{owner} +{}", more - 1),
    };
    let of_hold = |ms: Option<u64>| ms.map_or_else(String::new, text::time);
    let all = [
        text::escaped(&wanted.key),
        wanted.db.to_string(),
        row.node.to_owned(),
        text::count(wanted.waiters),
        text::time(wanted.oldest_ms),
        wanted
            .detail
            .as_ref()
            .map_or("", |detail| detail.wait_by())
            .to_owned(),
        wanted.mode.name().to_owned(),
        text::count(wanted.holders),
        held_by,
        of_hold(hold.map(|hold| hold.held_ms)),
        of_hold(hold.map(|hold| hold.lease_ms)),
    ];
    Cells {
        texts: shown.iter().map(|at| all[*at].clone()).collect(),
        style: if row.stale {
            theme.stale()
        } else {
            Style::new()
        },
    }
}
