//! Chooses the columns that fit, and their widths.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, StatefulWidget, Table, TableState};

use super::theme::Theme;
use crate::text;

/// A column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub(super) title: &'static str,
    /// The columns it takes at least.
    pub(super) width: u16,
    /// The columns with the lowest rank stay longest on a narrow screen.
    pub(super) rank: u8,
    pub(super) kind: Kind,
}

impl Column {
    pub(super) const fn new(title: &'static str, width: u16, rank: u8, kind: Kind) -> Column {
        Column {
            title,
            width,
            rank,
            kind,
        }
    }
}

/// What is in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Names: it takes what room is left.
    Name,
    /// A word.
    Word,
    /// A number, set to the right.
    Number,
}

/// A line: one text for each column, room or not.
#[derive(Debug, Clone)]
pub(super) struct Cells {
    pub(super) texts: Vec<String>,
    pub(super) style: Style,
}

/// Draws as many columns as there is room for, and scrolls to the line that is chosen.
pub(super) fn draw(
    columns: &[Column],
    lines: &[Cells],
    chosen: Option<usize>,
    theme: Theme,
    area: Rect,
    buffer: &mut Buffer,
) {
    let shown = fitting(columns, lines, area.width);
    let header = shown
        .iter()
        .map(|(at, width)| cell(&columns[*at], columns[*at].title, *width));
    // If only one line is left, it shows content.
    let header = (area.height > 1).then(|| Row::new(header).style(theme.column()));
    let rows = lines.iter().map(|line| {
        let cells = shown
            .iter()
            .map(|(at, width)| cell(&columns[*at], &line.texts[*at], *width));
        Row::new(cells).style(line.style)
    });
    let widths = shown.iter().map(|(_, width)| Constraint::Length(*width));
    let mut table = Table::new(rows, widths).row_highlight_style(theme.chosen());
    if let Some(header) = header {
        table = table.header(header);
    }
    let mut state = TableState::new().with_selected(chosen);
    table.render(area, buffer, &mut state);
}

fn cell<'a>(column: &Column, content: &str, width: u16) -> Cell<'a> {
    let line = Line::from(text::shortened(content, usize::from(width)));
    Cell::from(match column.kind {
        Kind::Number => line.right_aligned(),
        Kind::Name | Kind::Word => line,
    })
}

/// The columns that have room, by their place, and how wide each is.
fn fitting(columns: &[Column], lines: &[Cells], room: u16) -> Vec<(usize, u16)> {
    let mut ranked: Vec<usize> = (0..columns.len()).collect();
    ranked.sort_by_key(|at| columns[*at].rank);
    let mut taken = 0;
    let mut shown: Vec<(usize, u16)> = Vec::new();
    for at in ranked {
        let gap = u16::from(!shown.is_empty());
        let needed = gap + columns[at].width;
        if taken + needed > room && !shown.is_empty() {
            break;
        }
        taken += needed;
        shown.push((at, columns[at].width));
    }
    share(room.saturating_sub(taken), columns, lines, &mut shown);
    shown.sort_unstable();
    shown
}

/// Gives what room is left to the names, evenly, to none more than it needs.
fn share(mut left: u16, columns: &[Column], lines: &[Cells], shown: &mut [(usize, u16)]) {
    let mut hungry: Vec<(&mut u16, u16)> = shown
        .iter_mut()
        .filter(|(at, _)| columns[*at].kind == Kind::Name)
        .map(|(at, width)| {
            let texts = lines.iter().map(|line| text::width(&line.texts[*at]));
            let needed = u16::try_from(texts.max().unwrap_or(0)).unwrap_or(u16::MAX);
            (width, needed)
        })
        .collect();
    while left > 0 && hungry.iter().any(|(width, needed)| **width < *needed) {
        for (width, needed) in &mut hungry {
            let more = u16::from(**width < *needed && left > 0);
            **width += more;
            left -= more;
        }
    }
}
