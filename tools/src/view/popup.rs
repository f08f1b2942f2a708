//! A window over the screen: a question, or the help.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Padding, Paragraph, Widget, Wrap};

use super::theme::Theme;
use crate::model::{Question, State};
use crate::text;

/// The columns a popup takes, where there are as many.
const WIDTH: u16 = 64;

const HELP: [&str; 11] = [
    "up, down, k, j    choose a line (also PgUp, PgDn, Home, End)",
    "Enter             open the lock: its holders and its queue",
    "o                 open a lock by its name, with or without waiters",
    "Esc               back; in the list: show everything again",
    "/                 show only lines with a text in the name",
    "                  of lock, holder or server",
    "b                 revoke or break the chosen hold, after asking",
    "s                 sort by the longest queue or the longest wait",
    "p                 pause: nothing moves until p is pressed again",
    "q, Ctrl-C         quit",
    "any key           closes this",
];

pub(super) fn draw(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    if let Some(question) = &state.question {
        let lines = lines_of(question, theme);
        show("Break this hold? r/y/N", lines, theme, area, buffer);
    } else if state.help {
        let lines = HELP.map(Line::from).to_vec();
        show("Keys", lines, theme, area, buffer);
    }
}

fn lines_of<'a>(question: &Question, theme: Theme) -> Vec<Line<'a>> {
    let (lock, hold) = (&question.lock, &question.hold);
    // Of a name of 255 bytes, each written in four letters, enough is shown to know it by.
    let name = |bytes: &[u8]| text::shortened(&text::escaped(bytes), 120);
    let waiters = match question.waiters {
        0 => "Nobody waits.".to_owned(),
        1 => "One waits, and gets it at once.".to_owned(),
        more => format!("{} wait; the next gets it at once.", text::count(more)),
    };
    vec![
        Line::from(format!("lock   {}", name(&lock.key))),
        Line::from(format!("on     {}, db {}", lock.node, lock.db)),
        Line::from(format!("owner  {}", name(&hold.owner))),
        Line::from(format!(
            "token  {}, held for {}",
            hold.token,
            text::time(hold.held_ms)
        )),
        Line::default(),
        Line::from("r  revoke it: its owner loses it at the next renewal and stops."),
        Line::from(format!(
            "   Nobody else is granted before. It takes {} at most.",
            text::time(hold.lease_ms)
        )),
        Line::styled(
            "y  break it: its work may go on until its next renewal.",
            theme.danger(),
        ),
        Line::styled(format!("   {waiters}"), theme.danger()),
        Line::from("any other key  leave it"),
    ]
}

fn show(title: &str, lines: Vec<Line<'_>>, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let inner = WIDTH.min(area.width.saturating_sub(4));
    let needed: usize = lines
        .iter()
        .map(|line| line.width().div_ceil(usize::from(inner.max(1))).max(1))
        .sum();
    // If a frame does not fit, show the question without one.
    let height = u16::try_from(needed + 2)
        .unwrap_or(u16::MAX)
        .min(area.height);
    let width = (inner + 4).min(area.width);
    let popup = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    Clear.render(popup, buffer);
    let block = Block::bordered()
        .title(Line::styled(format!(" {title} "), theme.title()))
        .padding(Padding::horizontal(1));
    Paragraph::new(lines)
        .wrap(Wrap { trim: false })
        .block(block)
        .render(popup, buffer);
}
