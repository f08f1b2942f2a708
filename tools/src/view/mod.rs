//! The state as people see it: a screen, columns for scripts, or JSON.

mod columns;
mod footer;
mod header;
mod list;
mod lock;
mod once;
mod popup;
mod theme;

use std::iter;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Widget};

pub use once::{json, plain};
pub use theme::Theme;

use crate::model::{Screen, State, warnings};
use crate::text;

/// From this height on there is room for more than the list.
const ROOMY: u16 = 16;
/// How many lines of warnings are shown, where there is room.
const WARNINGS: usize = 4;

/// Draws the whole screen.
pub fn draw(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let warnings = warning_lines(state, theme, area);
    let foot = u16::from(area.height >= 4);
    let gap = u16::from(area.height >= ROOMY);
    let [head, warned, _, body, foot] = Layout::vertical([
        Constraint::Length(head_height(area)),
        Constraint::Length(u16::try_from(warnings.len()).unwrap_or(0)),
        Constraint::Length(gap),
        Constraint::Min(0),
        Constraint::Length(foot),
    ])
    .areas(area);
    header::draw(state, theme, head, buffer);
    Paragraph::new(warnings).render(warned, buffer);
    match &state.screen {
        Screen::List => list::draw(state, theme, body, buffer),
        Screen::Lock(_) | Screen::Named(_) => lock::draw(state, theme, body, buffer),
    }
    footer::draw(state, theme, foot, buffer);
    popup::draw(state, theme, area, buffer);
}

fn head_height(area: Rect) -> u16 {
    match area.height {
        0..=2 => 0,
        3..ROOMY => 1,
        _ => header::HEIGHT,
    }
}

fn warning_lines(state: &State, theme: Theme, area: Rect) -> Vec<Line<'static>> {
    let room = match area.height {
        0..=5 => 0,
        6..ROOMY => 1,
        _ => WARNINGS,
    };
    let columns = usize::from(area.width);
    let mut lines: Vec<String> = Vec::new();
    let all = warnings(state);
    let mut shown = 0;
    for warning in &all {
        let signs = ["! "].into_iter().chain(iter::repeat("  "));
        let wrapped = text::wrapped(warning, columns.saturating_sub(2));
        let wrapped: Vec<String> = signs
            .zip(wrapped)
            .map(|(sign, line)| sign.to_owned() + &line)
            .collect();
        // The first is shown as far as it goes.
        if lines.len() + wrapped.len() > room && shown > 0 {
            break;
        }
        lines.extend(wrapped);
        shown += 1;
    }
    lines.truncate(room);
    let more = all.len() - shown.min(all.len());
    if more > 0
        && let Some(last) = lines.last_mut()
    {
        let and_more = format!("  (and {more} more)");
        *last = text::shortened(last, columns.saturating_sub(and_more.len())) + &and_more;
    }
    let styled = lines
        .into_iter()
        .map(|line| Line::styled(line, theme.warning()));
    styled.collect()
}
