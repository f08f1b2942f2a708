//! The last line: what has just happened, what is being typed, or the keys.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Widget};

use super::theme::Theme;
use crate::model::{Screen, State, Typing};
use crate::text;

pub(super) fn draw(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let line = if let Some(notice) = &state.notice {
        let room = usize::from(area.width);
        let words = text::wrapped(&notice.text, room.saturating_sub(1));
        let more = if words.len() > 1 { "…" } else { "" };
        Line::styled(format!("{}{more}", words[0]), theme.warning())
    } else {
        match &state.typing {
            Some(Typing::Filter) => {
                typed("show only: ", text::escaped(state.filter.as_bytes()), theme)
            }
            Some(Typing::Name(name)) => typed("open the lock: ", name.clone(), theme),
            None => keys(state, theme),
        }
    };
    Paragraph::new(line).render(area, buffer);
}

fn typed<'a>(what: &'static str, so_far: String, theme: Theme) -> Line<'a> {
    Line::from(vec![
        Span::styled(what, theme.label()),
        Span::styled(so_far, theme.number()),
        Span::styled(" ", theme.chosen()),
    ])
}

fn keys<'a>(state: &State, theme: Theme) -> Line<'a> {
    let all: &[(&str, &str)] = match state.screen {
        Screen::List => &[
            ("Enter", "open"),
            ("o", "by name"),
            ("b", "break"),
            ("/", "filter"),
            ("s", "sort"),
            ("p", "pause"),
            ("?", "help"),
            ("q", "quit"),
        ],
        Screen::Lock(_) | Screen::Named(_) => &[
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
