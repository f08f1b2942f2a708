//! The last line: what has just happened, what is being typed, or the keys.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Widget};

use super::theme::Theme;
use crate::model::{Screen, State};
use crate::text;

pub(super) fn draw(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let line = if let Some(notice) = &state.notice {
        let room = usize::from(area.width);
        let words = text::wrapped(&notice.text, room.saturating_sub(1));
        let more = if words.len() > 1 { "…" } else { "" };
        Line::styled(format!("{}{more}", words[0]), theme.warning())
    } else if state.typing {
        let typed = text::escaped(state.filter.as_bytes());
        Line::from(vec![
            Span::styled("show only: ", theme.label()),
            Span::styled(typed, theme.number()),
            Span::styled(" ", theme.chosen()),
        ])
    } else {
        keys(state, theme)
    };
    Paragraph::new(line).render(area, buffer);
}

fn keys<'a>(state: &State, theme: Theme) -> Line<'a> {
    let all: &[(&str, &str)] = match state.screen {
        Screen::List => &[
            ("Enter", "open"),
            ("b", "break"),
            ("/", "filter"),
            ("s", "sort"),
            ("p", "pause"),
            ("?", "help"),
            ("q", "quit"),
        ],
        Screen::Lock(_) => &[
            ("Esc", "back"),
            ("b", "break the hold"),
            ("p", "pause"),
            ("?", "help"),
            ("q", "quit"),
        ],
    };
    let mut spans = Vec::new();
    for (key, what) in all {
        spans.push(Span::styled(*key, theme.number()));
        spans.push(Span::styled(format!(" {what}  "), theme.label()));
    }
    if !state.filter.is_empty() {
        let filter = text::escaped(state.filter.as_bytes());
        spans.push(Span::styled(format!("only {filter}"), theme.warning()));
    }
    Line::from(spans)
}
