//! The servers in numbers: the current state, rates per second, and durations.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Widget};

use super::theme::Theme;
use crate::model::{State, Summary, Times};
use crate::text;

/// Its lines.
pub(super) const HEIGHT: u16 = 6;

pub(super) fn draw(state: &State, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let sum = state.summary();
    let lines = vec![
        first(state, &sum, theme, usize::from(area.width)),
        there_is(&sum, theme),
        happens(&sum, theme),
        refused(&sum, theme),
        takes("waited:", &sum.wait, &sum, theme),
        takes("held:", &sum.hold, &sum, theme),
    ];
    Paragraph::new(lines).render(area, buffer);
}

fn first<'a>(state: &State, sum: &Summary, theme: Theme, columns: usize) -> Line<'a> {
    let names: Vec<&str> = state.nodes.keys().map(String::as_str).collect();
    let (all, answer) = sum.nodes;
    let mut right = match (all, answer) {
        (1, 1) => "1 server".to_owned(),
        _ => format!("{answer} of {all} servers answer"),
    };
    if state.paused {
        right = format!("PAUSED  {right}");
    }
    let name = "mortise-top  ";
    let room = columns.saturating_sub(name.len() + right.len() + 2);
    let names = text::shortened(&names.join(", "), room);
    let gap = columns.saturating_sub(name.len() + text::width(&names) + right.len());
    Line::from(vec![
        Span::styled(name, theme.title()),
        Span::raw(names),
        Span::raw(" ".repeat(gap)),
        Span::styled(right, theme.number()),
    ])
}

fn there_is<'a>(sum: &Summary, theme: Theme) -> Line<'a> {
    let [waiters, mail, blocked] = sum.waiters;
    let mut line = Numbers::new(theme);
    line.add("locks", text::count(sum.locks));
    line.add("holders", text::count(sum.holders));
    line.add("waiters", text::count(waiters));
    line.add("by mail", text::count(mail));
    line.add("blocked", text::count(blocked));
    line.add("boxes", text::count(sum.mail[0]));
    line.add("letters", text::count(sum.mail[1]));
    line.into_line()
}

fn happens<'a>(sum: &Summary, theme: Theme) -> Line<'a> {
    let mut line = Numbers::new(theme);
    line.label("a second:");
    for (label, of) in [
        ("grants", sum.rates.map(|rates| rates.grants)),
        ("hand-offs", sum.rates.map(|rates| rates.handoffs)),
        ("re-entries", sum.rates.map(|rates| rates.reentries)),
        ("releases", sum.rates.map(|rates| rates.releases)),
        ("renewals", sum.rates.map(|rates| rates.renewals)),
    ] {
        line.add(label, rate(of));
    }
    line.into_line()
}

fn refused<'a>(sum: &Summary, theme: Theme) -> Line<'a> {
    let mut line = Numbers::new(theme);
    line.label("         ");
    for (label, of) in [
        ("denied", sum.rates.map(|rates| rates.denied)),
        ("time-outs", sum.rates.map(|rates| rates.timeouts)),
        ("expiries", sum.rates.map(|rates| rates.expiries)),
        ("deadlocks", sum.rates.map(|rates| rates.deadlocks)),
    ] {
        line.add(label, rate(of));
    }
    line.into_line()
}

fn rate(per_second: Option<f64>) -> String {
    per_second.map_or_else(|| "-".to_owned(), text::rate)
}

fn takes<'a>(what: &'static str, times: &Times, sum: &Summary, theme: Theme) -> Line<'a> {
    let mut line = Numbers::new(theme);
    line.label(what);
    // As wide as the label of the rates.
    line.label(&"         "[what.len()..]);
    line.add("p50", text::time(times.p50));
    line.add("p95", text::time(times.p95));
    line.add("p99", text::time(times.p99));
    line.add("max", text::time(times.max));
    if sum.nodes.1 > 1 {
        line.label("(the slowest server's)");
    }
    line.into_line()
}

/// A line of labels and numbers.
struct Numbers<'a> {
    spans: Vec<Span<'a>>,
    label: Style,
    number: Style,
}

impl<'a> Numbers<'a> {
    fn new(theme: Theme) -> Numbers<'a> {
        Numbers {
            spans: Vec::new(),
            label: theme.label(),
            number: theme.number(),
        }
    }

    fn label(&mut self, label: &'static str) {
        self.spans.push(Span::styled(label, self.label));
        self.spans.push(Span::raw(" "));
    }

    fn add(&mut self, label: &'static str, number: String) {
        self.label(label);
        self.spans.push(Span::styled(number, self.number));
        self.spans.push(Span::raw("  "));
    }

    fn into_line(self) -> Line<'a> {
        Line::from(self.spans)
    }
}
