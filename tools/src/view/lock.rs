//! One lock: who holds it, and its queue.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Widget};

use super::columns::{self, Cells, Column, Kind};
use super::theme::Theme;
use crate::model::{Detail, Hold, OpenLock, State, Waiter};
use crate::text;

const HOLDS: [Column; 7] = [
    Column::new("HELD BY", 12, 0, Kind::Name),
    Column::new("WRITE", 5, 3, Kind::Number),
    Column::new("READ", 5, 4, Kind::Number),
    Column::new("TOKEN", 16, 2, Kind::Number),
    Column::new("FOR", 9, 5, Kind::Number),
    Column::new("LEASE", 9, 1, Kind::Number),
    Column::new("CLIENT", 8, 6, Kind::Number),
];

const QUEUE: [Column; 7] = [
    Column::new("#", 4, 2, Kind::Number),
    Column::new("WAITS", 12, 0, Kind::Name),
    Column::new("MODE", 5, 3, Kind::Word),
    Column::new("FOR", 9, 1, Kind::Number),
    Column::new("LEFT", 9, 5, Kind::Number),
    Column::new("LEASE", 9, 6, Kind::Number),
    Column::new("BY", 14, 4, Kind::Word),
];

pub(super) fn draw(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let Some(open) = state.opened() else {
        return;
    };
    let title = u16::from(area.height > 2);
    let [head, body] =
        Layout::vertical([Constraint::Length(title), Constraint::Min(0)]).areas(area);
    let (what, detail) = match open.answer {
        None => ("asking…".to_owned(), None),
        Some(Err(error)) => (error.clone(), None),
        Some(Ok(None)) => ("nobody holds it, nobody waits".to_owned(), None),
        Some(Ok(Some(detail))) => (in_words(detail), Some(detail)),
    };
    Paragraph::new(title_line(open, what, theme)).render(head, buffer);
    if let Some(detail) = detail {
        draw_tables(detail, state.chosen_line(), theme, body, buffer);
    }
}

fn title_line<'a>(open: OpenLock<'_>, what: String, theme: Theme) -> Line<'a> {
    let place = match open.id {
        Some(id) => format!("  db {} on {}  ", id.db, id.node),
        None => "  ".to_owned(),
    };
    Line::from(vec![
        Span::styled(text::escaped(open.key), theme.title()),
        Span::styled(place, theme.label()),
        Span::raw(what),
    ])
}

fn in_words(detail: &Detail) -> String {
    let holders = text::plural(detail.holders, "holder");
    let waiters = text::plural(detail.waiters, "waiter");
    format!("{}, {holders}, {waiters}", detail.mode.name())
}

fn draw_tables(detail: &Detail, chosen: usize, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let holds: Vec<Cells> = detail.holds.iter().map(hold).collect();
    let queue: Vec<Cells> = (1..).zip(&detail.queue).map(waiter).collect();
    // The holders get a half at most, so that a crowd of readers leaves the queue in sight.
    let held = u16::try_from(holds.len() + 2).unwrap_or(u16::MAX);
    let half = if queue.is_empty() {
        area.height
    } else {
        area.height / 2
    };
    let [above, below] =
        Layout::vertical([Constraint::Length(held.min(half)), Constraint::Min(0)]).areas(area);
    let above = with_rest(above, holds.len(), detail.holders, theme, buffer);
    let below = with_rest(below, queue.len(), detail.waiters, theme, buffer);
    let in_queue = chosen.checked_sub(holds.len());
    let of_holds = in_queue.is_none().then_some(chosen);
    columns::draw(&HOLDS, &holds, of_holds, theme, above, buffer);
    if !queue.is_empty() {
        columns::draw(&QUEUE, &queue, in_queue, theme, below, buffer);
    }
}

/// Shows in the last line how many more there are.
fn with_rest(area: Rect, shown: usize, all: u64, theme: Theme, buffer: &mut Buffer) -> Rect {
    let more = all.saturating_sub(shown as u64);
    if more == 0 || area.height < 3 {
        return area;
    }
    let [table, rest] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(area);
    let text = format!("and {} more", text::count(more));
    Paragraph::new(Line::styled(text, theme.label())).render(rest, buffer);
    table
}

fn hold(hold: &Hold) -> Cells {
    let texts = vec![
        text::escaped(&hold.owner),
        hold.write.to_string(),
        hold.read.to_string(),
        hold.token.to_string(),
        text::time(hold.held_ms),
        text::time(hold.lease_ms),
        match hold.client {
            0 => String::new(),
            client => client.to_string(),
        },
    ];
    Cells {
        texts,
        style: Style::new(),
    }
}

fn waiter((place, waiter): (usize, &Waiter)) -> Cells {
    let texts = vec![
        place.to_string(),
        text::escaped(&waiter.owner),
        waiter.mode.name().to_owned(),
        text::time(waiter.waited_ms),
        waiter
            .left_ms
            .map_or_else(|| "no limit".to_owned(), text::time),
        text::time(waiter.lease_ms),
        match waiter.client {
            0 => "mail".to_owned(),
            client => format!("client {client}"),
        },
    ];
    Cells {
        texts,
        style: Style::new(),
    }
}
